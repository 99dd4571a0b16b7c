package riverjobs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A database gets another name in the configuration while parents wait for their second look.
func TestWorkerConfirmsWhatWasRemovedUnderAnotherName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec(`
		DELETE FROM parents WHERE id = 1;
		DELETE FROM loose_foreign_keys_deleted_records;
		INSERT INTO sexton.swept (database, parent, integer_keys, swept_at) VALUES
			('former', 'public.parents', '{1}', now() - interval '1 minute'),
			('former', 'public.others', '{1}', now() - interval '1 minute');`)

	b.worked(t, "main")
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id = 1"), "children that came late")
	require.Equal(t, [][]string{{"public.others"}},
		b.db.Rows("SELECT parent FROM sexton.swept WHERE database = 'former'"), "those of nobody's parent are left alone")
}
