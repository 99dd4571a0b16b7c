package bench

import (
	"context"
	"crypto/md5" //nolint:gosec // Postgres's md5() makes the same text
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	// bigFile is the length of each file of the big diff: no text of Postgres may have 1 GiB.
	bigFile = 16 * mib
)

// diffSet are diffs that are all alike.
type diffSet struct {
	name string
	// diffs have files each, of fileBytes bytes; those are below 1 MiB or a multiple of it.
	diffs, files, fileBytes int64
}

// diffSets are objects that go in one request each, and objects that go in parts.
func diffSets(scale float64) []diffSet {
	return []diffSet{
		{name: "small", diffs: max(2, int64(500*scale)), files: 4, fileBytes: 8 * kib},
		{name: "large", diffs: max(1, int64(20*scale)), files: 8, fileBytes: mib},
	}
}

// bigDiff is one diff of so many MiB.
func bigDiff(size int) diffSet {
	s := diffSet{name: "big", diffs: 1, files: 1, fileBytes: int64(size) * mib}
	if s.fileBytes > bigFile {
		s.files, s.fileBytes = (s.fileBytes+bigFile-1)/bigFile, bigFile
	}
	return s
}

func (s diffSet) objectBytes() int64 { return s.files * s.fileBytes }

func (s diffSet) bytes() int64 { return s.diffs * s.objectBytes() }

// blockSQL is a text of 1 MiB that Postgres finds nothing to compress in.
const blockSQL = "(SELECT string_agg(md5(n::text), '' ORDER BY n) FROM generate_series(1, 32768) AS n)"

// newBlock is blockSQL.
func newBlock() []byte {
	block := make([]byte, 0, mib)
	for n := 1; len(block) < mib; n++ {
		sum := md5.Sum([]byte(strconv.Itoa(n))) //nolint:gosec // see the import
		block = hex.AppendEncode(block, sum[:])
	}
	return block
}

// fill are the statements that fill the tables of the reference application.
func (s diffSet) fill() []string {
	return []string{
		"INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group')",
		"INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project')",
		"INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (1, 1, 'title', 'branch', 'main')",
		fmt.Sprintf(`INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count)
			SELECT id, 1, 1, %d FROM generate_series(1, %d) AS id`, s.files, s.diffs),
		fmt.Sprintf(`INSERT INTO merge_request_diff_files (
				merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, new_path, "binary", diff
			)
			SELECT id, file, false, false, false, false, '100644', '100644', to_char(file, '0000'), to_char(file, '0000'), false, text.diff
			FROM generate_series(1, %d) AS id, generate_series(0, %d) AS file, (SELECT left(repeat(%s, %d), %d) AS diff OFFSET 0) AS text`,
			s.diffs, s.files-1, blockSQL, (s.fileBytes+mib-1)/mib, s.fileBytes),
	}
}

// write sends the content of one object.
func (s diffSet) write(block []byte, w io.Writer) error {
	for range s.files {
		for left := s.fileBytes; left > 0; left -= mib {
			if _, err := w.Write(block[:min(left, mib)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// digest is that of each object.
func (s diffSet) digest(block []byte) (blobstore.Digest, error) {
	sum := sha256.New()
	err := s.write(block, sum)
	d := blobstore.Digest{Size: s.objectBytes()}
	sum.Sum(d.SHA256[:0])
	return d, err
}

// check reports whether every diff has been moved, with the bytes that it had.
func (s diffSet) check(ctx context.Context, conn *pgx.Conn, want blobstore.Digest) error {
	var moved, texts int64
	err := conn.QueryRow(ctx, `
		SELECT
			(SELECT count(*) FROM merge_request_diffs AS diff JOIN sexton.external_diffs AS ledger ON ledger.diff_id = diff.id
			WHERE diff.stored_externally AND ledger.size = $1 AND ledger.sha256 = $2),
			(SELECT count(*) FROM merge_request_diff_files WHERE diff IS NOT NULL)`, want.Size, want.SHA256[:]).Scan(&moved, &texts)
	if err != nil {
		return fmt.Errorf("count moved diffs: %w", err)
	}
	if moved != s.diffs || texts != 0 {
		return fmt.Errorf("%d of %d diffs were moved as they must be, %d texts are left in the database", moved, s.diffs, texts)
	}
	return nil
}
