package extdiff

import "fmt"

const (
	// mostBytes is the greatest value of the columns for offset and size.
	mostBytes = 1<<31 - 1
	// pieceBytes is how much of a text one row of a stream has.
	pieceBytes = 1 << 18
)

// Key is where the object of a diff is.
func Key(mergeRequestID, diffID int64) string {
	return fmt.Sprintf("%s%d/%s", folderPrefix, mergeRequestID, objectName(diffID))
}

const (
	rootPrefix   = "merge_request_diffs/"
	folderPrefix = rootPrefix + "mr-"
	namePrefix   = "diff-"
)

// objectName is the last part of the key, which the column external_diff has.
func objectName(diffID int64) string { return fmt.Sprintf("%s%d", namePrefix, diffID) }

// sizeSQL is the length of a file's text in its object. Where the database has UTF-8 it is known without reading the text.
const sizeSQL = `CASE
    WHEN pg_catalog.getdatabaseencoding() = 'UTF8' THEN coalesce(pg_catalog.octet_length(file.diff), 0)
    ELSE coalesce(pg_catalog.octet_length("sexton".external_diff_body(file.diff)), 0)
END`

// layoutSQL is where each file of a diff ($1) goes: place counts the files in the order of the tree, at the bytes before.
// In that order folders come before the files beside them, and names are compared byte by byte. So each part of a path gets a
// mark that sorts folders first.
const layoutSQL = `
SELECT
    measured.relative_order,
    measured.encoded,
    measured.size,
    (pg_catalog.row_number() OVER tree OPERATOR(pg_catalog.-) 1)::integer AS place,
    coalesce(pg_catalog.sum(measured.size) OVER (tree ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::bigint AS at
FROM (
    SELECT
        file.relative_order,
        "sexton".external_diff_encoded(CASE WHEN pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.=) 'SQL_ASCII' THEN file.diff END) AS encoded,
        (` + sizeSQL + `)::bigint AS size,
        (
            SELECT pg_catalog.array_agg(
                CASE WHEN part.number OPERATOR(pg_catalog.<) pg_catalog.cardinality(path.parts) THEN '0' ELSE '1' END OPERATOR(pg_catalog.||) part.name
                ORDER BY part.number)
            FROM pg_catalog.unnest(path.parts) WITH ORDINALITY AS part (name, number)
        ) AS branch
    FROM "public".merge_request_diff_files AS file
    CROSS JOIN LATERAL (SELECT pg_catalog.string_to_array(coalesce(file.new_path, file.old_path), '/') AS parts) AS path
    WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
) AS measured
WINDOW tree AS (ORDER BY measured.branch COLLATE "C", measured.relative_order)`

// surveySQL reads the facts about the files of a diff ($1) before they are moved: how many there are, their bytes, whether
// one is external already although its diff is not, and a fingerprint of all row versions.
const surveySQL = `
SELECT
    pg_catalog.count(*),
    coalesce(pg_catalog.sum(` + sizeSQL + `), 0)::bigint,
    coalesce(pg_catalog.bool_or(file.diff IS NULL AND file.external_diff_size OPERATOR(pg_catalog.>) 0), false),
    ` + fingerprintSQL + `
FROM "public".merge_request_diff_files AS file
WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1`

const fingerprintSQL = `pg_catalog.md5(coalesce(pg_catalog.string_agg(
    file.relative_order::pg_catalog.text OPERATOR(pg_catalog.||) ' ' OPERATOR(pg_catalog.||) file.xmin::pg_catalog.text,
    ',' ORDER BY file.relative_order), ''))`

// streamSQL is the content of the object of a diff ($1) in pieces of $2 bytes, one row each, with the place of the file and the
// number of the piece; from piece $4 of the file at $3 on. The order follows from the nested loops, which LATERAL demands: a sort would
// put the whole content into temporary files. OFFSET 0 has each text unpacked once and not for each of its pieces.
const streamSQL = `
SELECT layout.place, piece.number, substring(text.body FROM (piece.number OPERATOR(pg_catalog.*) $2) OPERATOR(pg_catalog.+) 1 FOR $2)
FROM (SELECT * FROM (` + layoutSQL + `) AS layout
    WHERE layout.size OPERATOR(pg_catalog.>) 0 AND layout.place OPERATOR(pg_catalog.>=) $3 ORDER BY layout.place OFFSET 0
) AS layout
CROSS JOIN LATERAL (
    SELECT "sexton".external_diff_body(file.diff) AS body
    FROM "public".merge_request_diff_files AS file
    WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
      AND file.relative_order OPERATOR(pg_catalog.=) layout.relative_order
    OFFSET 0
) AS text
CROSS JOIN LATERAL pg_catalog.generate_series(
    CASE WHEN layout.place OPERATOR(pg_catalog.=) $3 THEN $4 ELSE 0 END,
    (pg_catalog.octet_length(text.body) OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog./) $2
) AS piece (number)`

// switchSQL puts where its text is in place of the text, for each file of a diff ($1). Files that get another place step aside to
// negative numbers, as the key allows no two files in one place even within a statement.
const switchSQL = `
UPDATE "public".merge_request_diff_files AS file
SET diff = NULL,
    external_diff_offset = layout.at::integer,
    external_diff_size = layout.size::integer,
    "binary" = layout.encoded OR coalesce(file."binary", false),
    new_path = CASE WHEN nullable.new_path AND file.new_path OPERATOR(pg_catalog.=) file.old_path THEN NULL ELSE file.new_path END,
    relative_order = CASE WHEN layout.place OPERATOR(pg_catalog.=) file.relative_order THEN layout.place
        ELSE -1 OPERATOR(pg_catalog.-) layout.place END{project}
FROM (` + layoutSQL + `) AS layout
CROSS JOIN (
    SELECT NOT attribute.attnotnull AS new_path
    FROM pg_catalog.pg_attribute AS attribute
    WHERE attribute.attrelid OPERATOR(pg_catalog.=) '"public".merge_request_diff_files'::pg_catalog.regclass
      AND attribute.attname OPERATOR(pg_catalog.=) 'new_path'
) AS nullable
WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
  AND file.relative_order OPERATOR(pg_catalog.=) layout.relative_order`

// projectSQL, in switchSQL, gives the files without a project that of their diff, or else the one that the merge request goes to.
// It reads both by their names in the row, which the tables of some applications do not have.
const projectSQL = `,
    project_id = coalesce(file.project_id, (
        SELECT coalesce(
            (pg_catalog.to_jsonb(parent) OPERATOR(pg_catalog.->>) 'project_id')::bigint,
            (pg_catalog.to_jsonb(request) OPERATOR(pg_catalog.->>) 'target_project_id')::bigint)
        FROM "public".merge_request_diffs AS parent
        LEFT JOIN "public".merge_requests AS request ON request.id OPERATOR(pg_catalog.=) parent.merge_request_id
        WHERE parent.id OPERATOR(pg_catalog.=) $1
    ))`

// ownedSQL reports whether files have a project.
const ownedSQL = `
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_attribute AS attribute
    WHERE attribute.attrelid OPERATOR(pg_catalog.=) '"public".merge_request_diff_files'::pg_catalog.regclass
      AND attribute.attname OPERATOR(pg_catalog.=) 'project_id' AND NOT attribute.attisdropped
)`
