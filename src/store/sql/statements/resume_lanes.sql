-- These records stop nothing any more.
{delete:lane by {index}lane_record} WHERE record_id IN ({ids})
