-- The tables of one set of locks. {lock} stands for the schema and prefix.

CREATE TABLE IF NOT EXISTS {lock}meta (
    id              smallint    PRIMARY KEY CHECK (id = 1),
    schema_version  bigint      NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A row per key. Its row lock puts those who arrive into an order.
CREATE TABLE IF NOT EXISTS {lock}resource (
    resource    text        COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 255),
    last_token  bigint      NOT NULL,
    used_at     timestamptz NOT NULL
);

-- A row for the holder and for each waiter. The lowest token of a key holds it.
CREATE TABLE IF NOT EXISTS {lock}ticket (
    resource    text        COLLATE "C" NOT NULL,
    token       bigint      NOT NULL,
    ticket      text        COLLATE "C" NOT NULL UNIQUE,
    client      text        COLLATE "C" NOT NULL,
    owner       text        NOT NULL,
    -- How often the owner has entered; each release takes one down.
    entries     integer     NOT NULL,
    queued_at   timestamptz NOT NULL,
    -- From then on, whoever stands behind may delete the row.
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (resource, token)
);

INSERT INTO {lock}meta (id, schema_version) VALUES (1, 1) ON CONFLICT DO NOTHING;
