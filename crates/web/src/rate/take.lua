-- Takes a token of a bucket. KEYS: the bucket. ARGV: its capacity, tokens per microsecond, seconds to keep it.
-- The rule is that of bucket.rs; a test compares the two.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'lastRefillTime')
local capacity = tonumber(ARGV[1])
local tokens = tonumber(kept[1]) or capacity
local elapsed = math.max(0, now - (tonumber(kept[2]) or now))
tokens = math.min(capacity, tokens + elapsed * tonumber(ARGV[2]))
local allowed = 0
if tokens >= 1 - 1e-9 then
  allowed = 1
  tokens = tokens - 1
end
-- All digits of a double, or the next refill begins elsewhere.
local left = string.format('%.17g', tokens)
redis.call('HSET', KEYS[1], 'tokens', left, 'lastRefillTime', string.format('%.0f', now))
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {allowed, left}
