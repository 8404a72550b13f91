-- All partitions with their owners.
SELECT {int:partition_no}, owner, generation, {age:claimed_at} FROM {outbox}partition ORDER BY partition_no
