package bench

import (
	"bytes"
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// TestDiffSets compares the texts in the database with what plain uploads send.
func TestDiffSets(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := connected(t, db)
	s := diffSets(0.004)[0]
	s.files, s.fileBytes = 12, 2*mib
	for _, statement := range append([]string{sample.Schema()}, s.fill()...) {
		db.Exec(statement)
	}
	var sent bytes.Buffer
	require.NoError(t, s.write(newBlock(), &sent))
	var text string
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT string_agg(diff, '' ORDER BY new_path) FROM merge_request_diff_files WHERE merge_request_diff_id = 2").Scan(&text))
	require.Equal(t, sha256.Sum256(sent.Bytes()), sha256.Sum256([]byte(text)), "what is uploaded, and the texts in the database")
	digest := pgtest.Must(s.digest(newBlock()))(t)
	require.Equal(t, sha256.Sum256(sent.Bytes()), digest.SHA256)
	require.EqualValues(t, 24*mib, digest.Size)

	// Every way to move them wrongly is found.
	db.Exec("CREATE SCHEMA sexton; CREATE TABLE sexton.external_diffs (diff_id bigint, size bigint, sha256 bytea)")
	require.ErrorContains(t, s.check(t.Context(), conn, digest), "0 of 2 diffs were moved as they must be, 24 texts are left")
	db.Exec("UPDATE merge_request_diffs SET stored_externally = true; UPDATE merge_request_diff_files SET diff = NULL")
	db.Exec("INSERT INTO sexton.external_diffs VALUES (1, $1, $2), (2, $1, $2)", digest.Size, digest.SHA256[:])
	require.NoError(t, s.check(t.Context(), conn, digest))
	db.Exec("UPDATE sexton.external_diffs SET sha256 = 'x' WHERE diff_id = 2")
	require.ErrorContains(t, s.check(t.Context(), conn, digest), "1 of 2 diffs")
}

func TestBigDiff(t *testing.T) {
	t.Parallel()
	require.Equal(t, diffSet{name: "big", diffs: 1, files: 1, fileBytes: 3 * mib}, bigDiff(3))
	require.Equal(t, diffSet{name: "big", diffs: 1, files: 64, fileBytes: 16 * mib}, bigDiff(1024))
}
