-- As move_fence, in a transaction in which code of the user has run: only if the transaction still has its mark.
UPDATE {outbox}fence {by:PRIMARY} SET counter = counter + 1
WHERE instance_id = {instance} AND slot = {slot} AND counter = {counter} AND {server} = {home} {marked}
