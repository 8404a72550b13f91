-- Scheduling from SQL: triggers, scripts and services in other languages.
-- These are procedures, as a server with a binary log lets few users create functions. The mysql client needs
-- another delimiter around each of them, as the printed script has it.

-- The partition of a record key: xxh3_64 of its UTF-8 bytes, mod 256. Where the seed would enter, it is 0.
-- Words are BIGINT UNSIGNED, which raises on overflow: sums and products are made as decimals and cut to 64 bits.
DROP PROCEDURE IF EXISTS {outbox}partition_of;
CREATE PROCEDURE {outbox}partition_of(
    -- Longer than a key may be, so that a server that truncates does not hide that it is too long.
    IN  record_key   VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    OUT partition_no SMALLINT
)
DETERMINISTIC NO SQL SQL SECURITY INVOKER
BEGIN
    DECLARE secret VARBINARY(192) DEFAULT
        x'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e';
    DECLARE prime_1 BIGINT UNSIGNED DEFAULT 0x9E3779B185EBCA87;
    DECLARE two_64 DECIMAL(20, 0) DEFAULT 18446744073709551616;
    DECLARE bytes VARBINARY(4096) DEFAULT CAST(record_key AS BINARY);
    DECLARE len INT DEFAULT COALESCE(OCTET_LENGTH(record_key), 0);
    DECLARE h, a, b, c, d BIGINT UNSIGNED DEFAULT 0;
    DECLARE sum, sum_a, sum_b DECIMAL(30, 0) DEFAULT 0;
    DECLARE product DECIMAL(40, 0);
    DECLARE n, rounds, pos, secret_pos INT DEFAULT 0;
    DECLARE problem VARCHAR(128);

    IF len NOT BETWEEN 1 AND 255 THEN
        SET problem = CONCAT('a record key has 1 to 255 bytes of UTF-8, this one has ', len);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = problem;
    ELSEIF len <= 3 THEN
        SET h = (ORD(SUBSTRING(bytes, 1, 1)) << 16) | (ORD(SUBSTRING(bytes, (len >> 1) + 1, 1)) << 24)
            | ORD(SUBSTRING(bytes, len, 1)) | (len << 8);
        SET h = h ^ 0x87275A9B; -- bytes 0 to 7 of the secret
        SET h = CAST(h ^ (h >> 33) AS DECIMAL(20, 0)) * 14029467366897019727 MOD two_64;
        SET h = CAST(h ^ (h >> 29) AS DECIMAL(20, 0)) * 1609587929392839161 MOD two_64;
        SET h = h ^ (h >> 32);
    ELSEIF len <= 8 THEN
        -- The last four bytes below the first four.
        SET a = CONV(HEX(REVERSE(SUBSTRING(bytes, 1, 4))), 16, 10);
        SET b = CONV(HEX(REVERSE(SUBSTRING(bytes, len - 3, 4))), 16, 10);
        SET h = ((a << 32) | b) ^ 0xC73AB174C5ECD5A2; -- bytes 8 to 23 of the secret
        SET h = h ^ ((h << 49) | (h >> 15)) ^ ((h << 24) | (h >> 40));
        SET h = CAST(h AS DECIMAL(20, 0)) * 11507291218515648293 MOD two_64;
        SET h = CAST(h ^ ((h >> 35) + len) AS DECIMAL(20, 0)) * 11507291218515648293 MOD two_64;
        SET h = h ^ (h >> 28);
    ELSE
        IF len <= 16 THEN
            SET a = CONV(HEX(REVERSE(SUBSTRING(bytes, 1, 8))), 16, 10);
            SET b = CONV(HEX(REVERSE(SUBSTRING(bytes, len - 7, 8))), 16, 10);
            SET a = a ^ 0x6782737BEA4239B9; -- bytes 24 to 39 of the secret
            SET b = b ^ 0xAF56BC3B0996523A; -- bytes 40 to 55
            SET product = CAST(a AS DECIMAL(20, 0)) * b;
            SET c = product MOD two_64;
            SET d = (product - c) / two_64;
            SET a = CONV(HEX(REVERSE(UNHEX(LPAD(HEX(a), 16, '0')))), 16, 10); -- big-endian
            SET sum = CAST(c ^ d AS DECIMAL(20, 0)) + b + a + len;
        ELSEIF len <= 240 THEN
            -- 16 bytes of the key with 16 bytes of the secret, from both ends or from one end to the other.
            SET sum = CAST(len AS DECIMAL(20, 0)) * prime_1;
            SET rounds = IF(len <= 128, 2 * ((len - 1) DIV 32 + 1), len DIV 16 + 1);
            WHILE n < rounds DO
                IF len <= 128 THEN
                    SET pos = IF(n & 1, len - 16 * (n DIV 2) - 16, 16 * (n DIV 2)), secret_pos = 16 * n;
                ELSEIF n < rounds - 1 THEN
                    SET pos = 16 * n, secret_pos = IF(n < 8, 16 * n, 16 * (n - 8) + 3);
                ELSE
                    SET pos = len - 16, secret_pos = 119;
                END IF;
                SET a = CONV(HEX(REVERSE(SUBSTRING(bytes, pos + 1, 8))), 16, 10);
                SET b = CONV(HEX(REVERSE(SUBSTRING(bytes, pos + 9, 8))), 16, 10);
                SET c = CONV(HEX(REVERSE(SUBSTRING(secret, secret_pos + 1, 8))), 16, 10);
                SET d = CONV(HEX(REVERSE(SUBSTRING(secret, secret_pos + 9, 8))), 16, 10);
                SET product = CAST(a ^ c AS DECIMAL(20, 0)) * (b ^ d);
                SET c = product MOD two_64;
                SET d = (product - c) / two_64;
                SET sum = sum + (c ^ d);
                IF len > 128 AND n = 7 THEN
                    SET h = sum MOD two_64;
                    SET h = CAST(h ^ (h >> 37) AS DECIMAL(20, 0)) * 1609587791953885689 MOD two_64;
                    SET sum = h ^ (h >> 32);
                END IF;
                SET n = n + 1;
            END WHILE;
        ELSE
            -- The long form. Up to 255 bytes it is three stripes of 64 and the last 64 bytes once more. The lanes of
            -- a stripe only add: two lanes are summed up over all stripes, and then the next two.
            SET sum = CAST(len AS DECIMAL(20, 0)) * prime_1;
            WHILE n < 4 DO
                SET sum_a = ELT(n + 1, 3266489917, 14029467366897019727, 9650029242287828579, 2870177450012600261);
                SET sum_b = ELT(n + 1, 11400714785074694791, 1609587929392839161, 2246822519, 2654435761);
                SET rounds = 0;
                WHILE rounds < 4 DO
                    SET pos = IF(rounds = 3, len - 64, 64 * rounds) + 16 * n;
                    SET secret_pos = IF(rounds = 3, 121, 8 * rounds) + 16 * n;
                    SET a = CONV(HEX(REVERSE(SUBSTRING(bytes, pos + 1, 8))), 16, 10);
                    SET b = CONV(HEX(REVERSE(SUBSTRING(bytes, pos + 9, 8))), 16, 10);
                    SET c = CONV(HEX(REVERSE(SUBSTRING(secret, secret_pos + 1, 8))), 16, 10);
                    SET d = CONV(HEX(REVERSE(SUBSTRING(secret, secret_pos + 9, 8))), 16, 10);
                    SET c = a ^ c, d = b ^ d;
                    SET sum_a = sum_a + b + (c & 4294967295) * (c >> 32);
                    SET sum_b = sum_b + a + (d & 4294967295) * (d >> 32);
                    SET rounds = rounds + 1;
                END WHILE;
                SET a = sum_a MOD two_64, b = sum_b MOD two_64;
                SET c = CONV(HEX(REVERSE(SUBSTRING(secret, 16 * n + 12, 8))), 16, 10);
                SET d = CONV(HEX(REVERSE(SUBSTRING(secret, 16 * n + 20, 8))), 16, 10);
                SET product = CAST(a ^ c AS DECIMAL(20, 0)) * (b ^ d);
                SET c = product MOD two_64;
                SET d = (product - c) / two_64;
                SET sum = sum + (c ^ d);
                SET n = n + 1;
            END WHILE;
        END IF;
        SET h = sum MOD two_64;
        SET h = CAST(h ^ (h >> 37) AS DECIMAL(20, 0)) * 1609587791953885689 MOD two_64;
        SET h = h ^ (h >> 32);
    END IF;
    SET partition_no = h & 255;
END;

-- Schedules an event in the caller's transaction: one record for each handler listed for its type or for a pattern
-- of it, in which `*` stands for any text.
DROP PROCEDURE IF EXISTS {outbox}schedule;
CREATE PROCEDURE {outbox}schedule(
    IN record_type VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    IN record_key  VARCHAR(1024) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- JSON.
    IN payload     LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- A JSON object of strings, or NULL.
    IN headers     LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- A uuid as text, or NULL for a new one.
    IN event_id    VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
)
MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
    DECLARE key_partition SMALLINT;
    DECLARE event VARBINARY(64) DEFAULT UNHEX(REPLACE(COALESCE(event_id, UUID()), '-', ''));
    DECLARE header_values LONGTEXT CHARACTER SET utf8mb4;
    DECLARE n INT DEFAULT 0;
    DECLARE problem VARCHAR(128);

    IF COALESCE(OCTET_LENGTH(record_type), 0) NOT BETWEEN 1 AND 128 THEN
        SET problem = 'a record type has 1 to 128 bytes';
    ELSEIF JSON_VALID(payload) IS NOT TRUE THEN
        SET problem = 'a payload is JSON, and not NULL';
    ELSEIF event IS NULL OR OCTET_LENGTH(event) <> 16 THEN
        SET problem = 'an event id is a uuid, or NULL for a new one';
    ELSEIF headers IS NOT NULL THEN
        -- Workers read headers as a map of texts: anything else would stop them at every fetch.
        IF JSON_VALID(headers) AND JSON_TYPE(headers) = 'OBJECT' THEN
            SET header_values = JSON_EXTRACT(headers, '$.*');
            WHILE n < COALESCE(JSON_LENGTH(header_values), 0) AND problem IS NULL DO
                IF JSON_TYPE(JSON_EXTRACT(header_values, CONCAT('$[', n, ']'))) <> 'STRING' THEN
                    SET problem = 'headers are a JSON object of strings, or NULL';
                END IF;
                SET n = n + 1;
            END WHILE;
        ELSE
            SET problem = 'headers are a JSON object of strings, or NULL';
        END IF;
    END IF;
    IF problem IS NOT NULL THEN
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = problem;
    END IF;
    -- Refuses a key that is empty or too long.
    CALL {outbox}partition_of(record_key, key_partition);

    INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, payload, headers)
    SELECT event, key_partition, record_key, listed.handler, record_type, payload, headers
    FROM {outbox}handler AS listed
    WHERE record_type LIKE REPLACE(REPLACE(listed.record_type, '_', '|_'), '*', '%') ESCAPE '|'
    GROUP BY listed.handler
    ORDER BY listed.handler;

    IF ROW_COUNT() = 0 THEN
        SET problem = CONCAT('no handler is listed for the record type "', LEFT(record_type, 64), '"');
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = problem;
    END IF;
END;

-- Records that have failed for good, of routes and handlers that keep dead letters here; they stay until somebody
-- schedules them again or deletes them.
CREATE TABLE IF NOT EXISTS {outbox}dead_letter (
    id           BIGINT         NOT NULL PRIMARY KEY,
    created_at   DATETIME(6)    NOT NULL,
    failed_at    DATETIME(6)    NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
    event_id     BINARY(16)     NOT NULL,
    partition_no SMALLINT       NOT NULL,
    record_key   VARBINARY(255) NOT NULL,
    handler      VARCHAR(128)   NOT NULL,
    record_type  VARCHAR(128)   NOT NULL,
    content_type VARCHAR(128)   NOT NULL,
    payload      LONGBLOB       NOT NULL,
    headers      LONGTEXT,
    attempts     INT            NOT NULL,
    target       TEXT           NOT NULL,
    error        TEXT           NOT NULL,
    error_class  TEXT,
    error_kind   VARCHAR(32)    NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

UPDATE {outbox}meta SET schema_version = 4 WHERE id = 1;
