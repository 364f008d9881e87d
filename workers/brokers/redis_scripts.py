"""Scripts that the Redis server runs for `redis_transport` and `shared_keys`, each in one step."""

from __future__ import annotations

from typing import Final

# Reports the consumer as alive, and moves messages sent with a priority into the queue.
ARRIVE: Final = """
redis.call('ZADD', KEYS[1], redis.call('TIME')[1], ARGV[1])
for i = 3, #KEYS do redis.call('LMOVE', KEYS[i], KEYS[2], 'RIGHT', 'LEFT') end
"""
# Records a message as unacknowledged.
NOTE: Final = """
redis.call('RPOP', KEYS[1])
redis.call('ZADD', KEYS[2], redis.call('TIME')[1], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
"""
# Reports unacknowledged messages as held, unless they were given back.
HOLD: Final = """
local now = redis.call('TIME')[1]
for i = 1, #ARGV do redis.call('ZADD', KEYS[1], 'XX', now, ARGV[i]) end
"""
# Gives back the messages in one transit list.
LEAVE: Final = """
local queue = string.match(KEYS[2], '^(.*) [^ ]*$')
while redis.call('LMOVE', KEYS[2], queue, 'LEFT', 'RIGHT') do end
redis.call('ZREM', KEYS[1], KEYS[2])
"""
# Gives back what silent consumers had in transit. A list is called QUEUE, a space, and the consumer's id.
GIVE_BACK: Final = """
local silent = redis.call('TIME')[1] - ARGV[1]
local given = 0
for _, transit in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. silent)) do
    local queue = string.match(transit, '^(.*) [^ ]*$')
    while redis.call('LMOVE', transit, queue, 'LEFT', 'RIGHT') do given = given + 1 end
    redis.call('ZREM', KEYS[1], transit)
end
return given
"""
STILL_HERE: Final = """
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then redis.call('ZADD', KEYS[1], redis.call('TIME')[1], ARGV[1]) end
"""
# Puts an unacknowledged message into its queue, unless it was acknowledged or returned in the meantime.
RETURN: Final = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call(ARGV[4] or 'RPUSH', KEYS[3], ARGV[3])
return 1
"""
# Removes the time at which an unacknowledged message was last held, unless there is such a message.
FORGET: Final = """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[1]) end
"""
