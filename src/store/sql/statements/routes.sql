SELECT record_type, handler FROM {outbox}handler ORDER BY record_type, handler
