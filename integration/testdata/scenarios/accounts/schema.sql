-- The tables of an application that is not GitLab: accounts have uuid keys, organizations
-- have no parents, and audit events have a partition per month. Some tables have the name of
-- a table of GitLab, but other columns.
CREATE SCHEMA app;
CREATE TABLE accounts (id uuid PRIMARY KEY, email text NOT NULL UNIQUE, state text NOT NULL DEFAULT 'active');
CREATE TABLE organizations (id bigint PRIMARY KEY, slug text NOT NULL UNIQUE, deleted_on date, deleted_by uuid);
CREATE TABLE memberships (
    organization_id bigint REFERENCES organizations ON DELETE CASCADE,
    account_id uuid REFERENCES accounts ON DELETE CASCADE,
    role text NOT NULL,
    PRIMARY KEY (organization_id, account_id)
);
CREATE INDEX ON memberships (account_id);
CREATE TABLE documents (
    id uuid PRIMARY KEY,
    organization_id bigint NOT NULL,
    author_id uuid NOT NULL REFERENCES accounts,
    reviewer_id uuid REFERENCES accounts ON DELETE RESTRICT,
    title text NOT NULL
);
CREATE INDEX ON documents (organization_id);
CREATE INDEX ON documents (author_id);
CREATE INDEX ON documents (reviewer_id);
CREATE TABLE comments (
    id bigint PRIMARY KEY,
    document_id uuid NOT NULL REFERENCES documents ON DELETE CASCADE,
    account_id uuid REFERENCES accounts ON DELETE SET NULL
);
CREATE INDEX ON comments (document_id);
CREATE INDEX ON comments (account_id);
CREATE TABLE attachments (id text PRIMARY KEY, document_id uuid NOT NULL, bucket text NOT NULL, storage_key text NOT NULL);
CREATE INDEX ON attachments (document_id);
CREATE TABLE exports (id bigint PRIMARY KEY, account_id uuid NOT NULL, storage_key text NOT NULL);
CREATE INDEX ON exports (account_id);
CREATE TABLE audit_events (
    id bigint,
    happened_on date,
    organization_id bigint NOT NULL,
    document_id uuid,
    account_id uuid NOT NULL,
    PRIMARY KEY (id, happened_on)
) PARTITION BY RANGE (happened_on);
CREATE TABLE audit_events_2026_10 PARTITION OF audit_events FOR VALUES FROM ('2026-10-01') TO ('2026-11-01');
CREATE TABLE audit_events_2026_11 PARTITION OF audit_events FOR VALUES FROM ('2026-11-01') TO ('2026-12-01');
CREATE INDEX ON audit_events (organization_id);
CREATE INDEX ON audit_events (document_id);
CREATE INDEX ON audit_events (account_id);
CREATE TABLE members (name text);
CREATE TABLE projects (id text);
CREATE TABLE application_settings (name text);

CREATE FUNCTION app.may_delete_account(account uuid, initiator uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'is the only owner of ' || string_agg(o.slug, ', ' ORDER BY o.slug)
    FROM public.memberships AS m
    JOIN public.organizations AS o ON o.id = m.organization_id
    WHERE m.account_id = account AND m.role = 'owner' AND NOT EXISTS (
        SELECT FROM public.memberships AS other
        WHERE other.organization_id = o.id AND other.role = 'owner' AND other.account_id <> account
    )
$$;

CREATE FUNCTION app.may_remove_organization(organization bigint, account uuid) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'is not an owner' WHERE NOT EXISTS (
        SELECT FROM public.memberships AS m WHERE m.organization_id = organization AND m.account_id = account AND m.role = 'owner'
    )
$$;

-- key_of returns the key of account or document n, and who returns the name of an
-- account.
CREATE FUNCTION key_of(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid $$;
CREATE FUNCTION who(account uuid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN account IS NOT NULL THEN coalesce((SELECT split_part(email, '@', 1) FROM accounts WHERE id = account), 'nobody') END
$$;

-- The installation requires the account that takes over contributions.
INSERT INTO accounts VALUES (key_of(9), 'ghost@example.com');
