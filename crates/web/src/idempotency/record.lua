-- The record of an idempotency key. KEYS: the record. ARGV: what to do (begin, finish or free), the token of the
-- claim, its fingerprint, the key as the client has sent it, the trace id, milliseconds to keep it, the result.
local verb, token = ARGV[1], ARGV[2]
local kept = redis.call('HMGET', KEYS[1], 'status', 'token', 'fingerprint', 'result')
local status = kept[1]
if verb == 'begin' then
  if status then
    return {status, kept[3] == ARGV[3] and 1 or 0, kept[4] or ''}
  end
elseif status and kept[2] ~= token then
  return {'LATE', 0, ''}
elseif verb == 'free' then
  if status == 'PROCESSING' then
    redis.call('DEL', KEYS[1])
  end
  return {'FREED', 0, ''}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSETNX', KEYS[1], 'createdAt', string.format('%.0f', now))
redis.call('HSET', KEYS[1],
  'key', ARGV[4],
  'status', verb == 'begin' and 'PROCESSING' or 'SUCCESS',
  'result', ARGV[7],
  'traceId', ARGV[5],
  'expireAt', string.format('%.0f', now + ARGV[6]),
  'token', token,
  'fingerprint', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return {verb == 'begin' and 'STARTED' or 'KEPT', 0, ''}
