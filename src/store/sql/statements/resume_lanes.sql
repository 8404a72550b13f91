-- These records no longer stop their lanes.
{delete:lane by {index}lane_record} WHERE record_id IN ({ids})
