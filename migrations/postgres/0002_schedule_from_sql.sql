-- Scheduling from SQL: triggers, scripts and services in other languages.
-- {outbox}partition_of is the partition hash of the Rust side, xxh3_64 with seed 0. Words are
-- bigint taken as unsigned: bigint raises on overflow, so sums and products are put together from
-- parts that cannot. Helpers in SQL of one expression are inlined into their callers, as long as
-- their arguments are cheap: give them variables.

-- a + b mod 2^64. A sum of unlike signs cannot overflow; flipping the top bit of a makes them unlike.
CREATE OR REPLACE FUNCTION {outbox}xxh3_add64(a bigint, b bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN (a # b) < 0 THEN a + b
        ELSE ((a # x'8000000000000000'::bigint) + b) # x'8000000000000000'::bigint
    END
$$;

-- a * b mod 2^64. The low halves are signed, (a << 32) >> 32, and carry into the high ones: each
-- product then fits into 62 bits and a sign.
CREATE OR REPLACE FUNCTION {outbox}xxh3_mul64(a bigint, b bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    a_low bigint := (a << 32) >> 32;
    b_low bigint := (b << 32) >> 32;
    low   bigint := a_low * b_low;
    cross_sum bigint := ((a >> 32) + ((a >> 31) & 1)) * b_low + ((b >> 32) + ((b >> 31) & 1)) * a_low;
BEGIN
    RETURN (((low >> 32) + (cross_sum & 4294967295)) << 32) | (low & 4294967295);
END
$$;

-- The halves of the 128-bit product, xored. Limbs of 32 by 16 bits, digits of 16 bits: nothing
-- exceeds 50 bits.
CREATE OR REPLACE FUNCTION {outbox}xxh3_mul128_fold64(a bigint, b bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    a0 bigint := a & 4294967295;
    a1 bigint := (a >> 32) & 4294967295;
    b0 bigint := b & 65535;
    b1 bigint := (b >> 16) & 65535;
    b2 bigint := (b >> 32) & 65535;
    b3 bigint := (b >> 48) & 65535;
    d0 bigint := a0 * b0;
    d1 bigint := (d0 >> 16) + a0 * b1;
    d2 bigint := (d1 >> 16) + a0 * b2 + a1 * b0;
    d3 bigint := (d2 >> 16) + a0 * b3 + a1 * b1;
    d4 bigint := (d3 >> 16) + a1 * b2;
    d5 bigint := (d4 >> 16) + a1 * b3;
BEGIN
    RETURN ((d0 # d4) & 65535) | (((d1 # d5) & 65535) << 16)
         | (((d2 # (d5 >> 16)) & 65535) << 32) | ((d3 # (d5 >> 32)) << 48);
END
$$;

-- The little-endian word of the 8 bytes from pos.
CREATE OR REPLACE FUNCTION {outbox}xxh3_read64(bytes bytea, pos integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ((get_byte(bytes, pos) | (get_byte(bytes, pos + 1) << 8)
             | (get_byte(bytes, pos + 2) << 16) | (get_byte(bytes, pos + 3) << 24))::bigint & 4294967295)
         | ((get_byte(bytes, pos + 4) | (get_byte(bytes, pos + 5) << 8)
             | (get_byte(bytes, pos + 6) << 16) | (get_byte(bytes, pos + 7) << 24))::bigint << 32)
$$;

-- 16 bytes of the key with 16 bytes of the secret, added to acc.
CREATE OR REPLACE FUNCTION {outbox}xxh3_mix16(acc bigint, bytes bytea, pos integer, secret bytea, secret_pos integer)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    a bigint := {outbox}xxh3_read64(bytes, pos) # {outbox}xxh3_read64(secret, secret_pos);
    b bigint := {outbox}xxh3_read64(bytes, pos + 8) # {outbox}xxh3_read64(secret, secret_pos + 8);
    mixed bigint := {outbox}xxh3_mul128_fold64(a, b);
BEGIN
    RETURN {outbox}xxh3_add64(acc, mixed);
END
$$;

-- `>>` keeps the sign: masks make it a shift of an unsigned word.
CREATE OR REPLACE FUNCTION {outbox}xxh3_avalanche(hash bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    h bigint := {outbox}xxh3_mul64(hash # ((hash >> 37) & x'7FFFFFF'::bigint), x'165667919E3779F9'::bigint);
BEGIN
    RETURN h # ((h >> 32) & 4294967295);
END
$$;

-- The partition of a record key: xxh3_64 of its UTF-8 bytes, mod 256. Where the seed would enter,
-- it is 0. search_path is kept so that the helpers are found wherever this is called from.
CREATE OR REPLACE FUNCTION {outbox}partition_of(record_key text) RETURNS smallint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
    secret CONSTANT bytea := '\x'
        'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221'
        'b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8'
        'a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb'
        '170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e';
    prime_1 CONSTANT bigint := x'9E3779B185EBCA87'::bigint;
    prime_2 CONSTANT bigint := x'C2B2AE3D27D4EB4F'::bigint;
    prime_3 CONSTANT bigint := x'165667B19E3779F9'::bigint;
    bytes   CONSTANT bytea := convert_to(record_key, 'UTF8');
    len     CONSTANT integer := length(bytes);
    h       bigint;
    a       bigint;
    b       bigint;
    swapped bytea;
    acc     bigint[];
    pos     integer;
    secret_pos integer;
BEGIN
    IF len NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'a record key has 1 to 255 bytes of UTF-8, this one has %', len
            USING HINT = 'Use a short stable name of what the event is about, such as order-42.';
    ELSIF len <= 3 THEN
        h := ((get_byte(bytes, 0) << 16) | (get_byte(bytes, len >> 1) << 24) | get_byte(bytes, len - 1) | (len << 8))
            ::bigint & 4294967295;
        h := h # x'87275A9B'::bigint; -- bytes 0 to 7 of the secret
        h := {outbox}xxh3_mul64(h # (h >> 33), prime_2);
        h := {outbox}xxh3_mul64(h # ((h >> 29) & x'7FFFFFFFF'::bigint), prime_3);
        h := h # (h >> 32);
    ELSIF len <= 8 THEN
        -- The last four bytes below the first four.
        h := 0;
        FOR i IN 0..3 LOOP
            h := h | (get_byte(bytes, len - 4 + i)::bigint << (8 * i)) | (get_byte(bytes, i)::bigint << (32 + 8 * i));
        END LOOP;
        h := h # x'C73AB174C5ECD5A2'::bigint; -- bytes 8 to 23 of the secret
        h := h # ((h << 49) | ((h >> 15) & x'1FFFFFFFFFFFF'::bigint))
               # ((h << 24) | ((h >> 40) & x'FFFFFF'::bigint));
        h := {outbox}xxh3_mul64(h, x'9FB21C651E98DF25'::bigint);
        h := {outbox}xxh3_mul64(h # (((h >> 35) & x'1FFFFFFF'::bigint) + len), x'9FB21C651E98DF25'::bigint);
        h := h # (h >> 28);
    ELSIF len <= 16 THEN
        a := {outbox}xxh3_read64(bytes, 0) # x'6782737BEA4239B9'::bigint; -- bytes 24 to 39 of the secret
        b := {outbox}xxh3_read64(bytes, len - 8) # x'AF56BC3B0996523A'::bigint; -- bytes 40 to 55
        h := {outbox}xxh3_mul128_fold64(a, b);
        h := {outbox}xxh3_add64(h, b);
        swapped := int8send(a); -- big-endian
        a := {outbox}xxh3_read64(swapped, 0);
        h := {outbox}xxh3_add64(h, a);
        h := {outbox}xxh3_avalanche({outbox}xxh3_add64(h, len));
    ELSIF len <= 128 THEN
        h := {outbox}xxh3_mul64(len, prime_1);
        FOR i IN 0..(len - 1) / 32 LOOP
            h := {outbox}xxh3_mix16(h, bytes, 16 * i, secret, 32 * i);
            h := {outbox}xxh3_mix16(h, bytes, len - 16 * i - 16, secret, 32 * i + 16);
        END LOOP;
        h := {outbox}xxh3_avalanche(h);
    ELSIF len <= 240 THEN
        h := {outbox}xxh3_mul64(len, prime_1);
        FOR i IN 0..7 LOOP
            h := {outbox}xxh3_mix16(h, bytes, 16 * i, secret, 16 * i);
        END LOOP;
        h := {outbox}xxh3_avalanche(h);
        FOR i IN 8..len / 16 - 1 LOOP
            h := {outbox}xxh3_mix16(h, bytes, 16 * i, secret, 16 * (i - 8) + 3);
        END LOOP;
        h := {outbox}xxh3_avalanche({outbox}xxh3_mix16(h, bytes, len - 16, secret, 119));
    ELSE
        -- The long form. Up to 255 bytes it is three stripes of 64 and the last 64 bytes once more.
        acc := ARRAY[
            x'C2B2AE3D'::bigint, prime_1, prime_2, prime_3,
            x'85EBCA77C2B2AE63'::bigint, x'85EBCA77'::bigint, x'27D4EB2F165667C5'::bigint, x'9E3779B1'::bigint
        ];
        FOR stripe IN 0..3 LOOP
            pos := CASE stripe WHEN 3 THEN len - 64 ELSE 64 * stripe END;
            secret_pos := CASE stripe WHEN 3 THEN 121 ELSE 8 * stripe END;
            FOR lane IN 0..7 LOOP
                a := {outbox}xxh3_read64(bytes, pos + 8 * lane);
                b := a # {outbox}xxh3_read64(secret, secret_pos + 8 * lane);
                h := acc[(lane # 1) + 1];
                acc[(lane # 1) + 1] := {outbox}xxh3_add64(h, a);
                a := {outbox}xxh3_mul64(b & 4294967295, (b >> 32) & 4294967295);
                h := acc[lane + 1];
                acc[lane + 1] := {outbox}xxh3_add64(h, a);
            END LOOP;
        END LOOP;
        h := {outbox}xxh3_mul64(len, prime_1);
        FOR i IN 0..3 LOOP
            a := acc[2 * i + 1] # {outbox}xxh3_read64(secret, 11 + 16 * i);
            b := acc[2 * i + 2] # {outbox}xxh3_read64(secret, 19 + 16 * i);
            a := {outbox}xxh3_mul128_fold64(a, b);
            h := {outbox}xxh3_add64(h, a);
        END LOOP;
        h := {outbox}xxh3_avalanche(h);
    END IF;
    RETURN (h & 255)::smallint;
END
$$;

-- Schedules an event in the caller's transaction: one record for each handler listed for its type
-- or for '*'. Returns how many. Parameters are qualified where columns have the same names.
CREATE OR REPLACE FUNCTION {outbox}schedule(
    record_type text,
    record_key  text,
    payload     jsonb,
    headers     jsonb DEFAULT NULL,
    event_id    uuid  DEFAULT gen_random_uuid()
) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    -- Refuses a key that is empty or too long.
    key_partition CONSTANT smallint := {outbox}partition_of(coalesce(record_key, ''));
    scheduled     integer;
BEGIN
    IF octet_length(convert_to(coalesce(record_type, ''), 'UTF8')) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'a record type has 1 to 128 bytes'
            USING HINT = 'Use the name that its handlers are registered for, such as order.placed.';
    END IF;
    -- Workers read headers as a map of texts: anything else would stop them at every fetch.
    IF jsonb_typeof(headers) <> 'object' OR jsonb_path_exists(headers, 'strict $.* ? (@.type() <> "string")') THEN
        RAISE EXCEPTION 'headers are a JSON object of strings'
            USING HINT = 'Such as jsonb_build_object(''trace_id'', ''4bf92f35''), or NULL for none.';
    END IF;

    INSERT INTO {outbox}record (event_id, partition_no, record_key, handler, record_type, payload, headers)
    SELECT
        {index}schedule.event_id, key_partition, {index}schedule.record_key, listed.handler,
        {index}schedule.record_type, convert_to({index}schedule.payload::text, 'UTF8'), {index}schedule.headers::text
    FROM {outbox}handler AS listed
    WHERE listed.record_type IN ({index}schedule.record_type, '*')
    GROUP BY listed.handler
    ORDER BY listed.handler;

    GET DIAGNOSTICS scheduled = ROW_COUNT;
    IF scheduled = 0 THEN
        RAISE EXCEPTION 'no handler is listed for the record type "%"', record_type
            USING HINT = 'Start a process that handles it once: it lists its handlers in {outbox}handler.';
    END IF;
    RETURN scheduled;
END
$$;

UPDATE {outbox}meta SET schema_version = 2 WHERE id = 1;
