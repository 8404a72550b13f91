-- Those of these records that have failed: nobody else repairs them, nor lets their lanes go on.
SELECT id FROM {outbox}record {by:PRIMARY} WHERE id IN ({ids}) AND status = 2 {lock}
