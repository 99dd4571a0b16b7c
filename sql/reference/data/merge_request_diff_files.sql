-- The files have unified diffs in git's format without the file header: edits, one new
-- file in each set of three, and a few pictures. Rare cases are binary data as base64, an
-- empty text, and a generated file of several megabytes.
INSERT INTO merge_request_diff_files (
    merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, generated,
    "binary", a_mode, b_mode, old_path, new_path, diff
)
SELECT
    new.diff_id,
    new.place,
    merge_request_diffs.project_id,
    new.kind = 'new',
    false,
    false,
    false,
    false,
    new.kind IN ('picture', 'bytes'),
    CASE WHEN new.kind = 'new' THEN '0' ELSE '100644' END,
    '100644',
    new.path,
    NULL,
    CASE new.kind
        WHEN 'picture' THEN E'Binary files a/' || new.path || ' and b/' || new.path || E' differ\n'
        WHEN 'bytes' THEN encode(decode('40402d3120', 'hex') || decode(pg_temp.sha(n, 8), 'hex') || decode('00ff0a', 'hex'), 'base64')
        WHEN 'empty' THEN ''
        WHEN 'generated' THEN E'@@ -0,0 +1,60000 @@\n' || repeat(E'+\tcase 17: return "one of sixty thousand"\n', 60000)
        WHEN 'new' THEN E'@@ -0,0 +1,4 @@\n+# ' || new.subject || E'\n+\n+' || pg_temp.remark(n, 4) || E'\n+Since ' || pg_temp.sha(n, 5) || E'.\n'
        ELSE
            '@@ -' || new.line || ',6 +' || new.line || E',7 @@ func handle(w http.ResponseWriter, r *http.Request) {\n'
            || E' \tctx, cancel := context.WithTimeout(r.Context(), limit)\n \tdefer cancel()\n \n'
            || E'-\tresult, err := store.Find(ctx, ' || pg_temp.pick(n, 6, 900) || E')\n'
            || E'+\t// ' || new.subject || E'\n'
            || E'+\tresult, err := store.Find(ctx, r.PathValue("id"), ' || pg_temp.pick(n, 7, 900) || E')\n'
            || E' \tif err != nil {\n \t\treturn err\n'
            || coalesce(more.hunks, '')
    END
FROM (
    SELECT
        n,
        pg_temp.whole(n) AS diff_id,
        pg_temp.part(n)::integer AS place,
        pg_temp.pick(n, 1, 400) AS line,
        pg_temp.title(n, 2) AS subject,
        CASE
            WHEN pg_temp.part(n) = 2 THEN 'new'
            WHEN n % 60 = 1 THEN 'picture'
            WHEN n % 120 = 7 THEN 'bytes'
            WHEN n % 120 = 67 THEN 'empty'
            WHEN n % 10000 = 133 THEN 'generated'
            ELSE 'edit'
        END AS kind,
        (ARRAY['app', 'cmd', 'internal', 'lib'])[1 + pg_temp.part(n)]
            || '/' || (ARRAY['user', 'group', 'build', 'import', 'search', 'todo', 'hook', 'label'])[pg_temp.pick(n, 3, 8)]
            || '/' || CASE WHEN pg_temp.part(n) = 2 THEN 'README.md' WHEN n % 60 = 1 THEN 'logo.png' ELSE 'handler.go' END AS path
    FROM generate_series(@first::bigint, @last::bigint) AS n
) AS new
JOIN merge_request_diffs ON merge_request_diffs.id = new.diff_id
CROSS JOIN LATERAL (
    SELECT string_agg(
        '@@ -' || new.line + 20 * hunk || ',3 +' || new.line + 20 * hunk + 1 || E',3 @@ func render' || hunk || E'(page *Page) error {\n'
            || E' \tfor _, part := range page.Parts {\n-\t\twrite(part.Title)\n+\t\twrite(part.Title, part.Language)\n \t}\n',
        '' ORDER BY hunk
    ) AS hunks
    FROM generate_series(1, pg_temp.skewed(new.n, 8, 30, 4) - 1) AS hunk
    WHERE new.kind = 'edit'
) AS more;
