-- An instance was declared dead without a word: counted for all that it owned.
UPDATE {outbox}partition {by:PRIMARY} SET crashes = crashes + 1 WHERE owner = $1
