-- Stopped lanes by reason.
SELECT reason, count(*) FROM {outbox}lane GROUP BY reason
