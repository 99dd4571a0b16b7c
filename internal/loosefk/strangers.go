package loosefk

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/each"
)

// Tombstones may carry a name that no definition knows: that of a table which was swapped with another one, detached
// from its root or renamed. The trigger has left the name that it was installed under and the table's OID with them.
// A tombstone means the table that has its name now; only where none has it, the table itself, by whatever name. Both
// failing, it is about that table whose trigger it came from. Whether its parent lives is looked up there.

// adoptPages bounds the pages of one run. The next run goes on where it ends.
const adoptPages = 10

// adopt gives tombstones of unknown names to the parents that they are about. Those without one stay: a run goes on behind the
// ones that earlier runs have passed over, and after the last one from the beginning.
func (r *run) adopt(ctx context.Context, strangers []string) error {
	schemas, names := namesOf(r.engine.Parents)
	recorded := each.Of(r.engine.Parents, func(p *Parent) string { return p.Recorded })
	passed := r.cursors.passedOver()
	// A database may print all names in quotes, which tombstones have where they need them.
	unquoted := batch.Statement{SQL: "SET LOCAL quote_all_identifiers = off"}
	size := cmp.Or(r.engine.page, pageSize)
	for page := 0; page < adoptPages && len(strangers) > 0 && !r.ended(); page++ {
		times, ids := arrays(each.Of(strangers, func(name string) position {
			at, known := passed[name]
			if delete(passed, name); known {
				return at
			}
			return beginning()
		}))
		asked := strangers
		strangers = nil
		_, err := r.engine.Session.Run(ctx, unquoted, batch.Statement{
			SQL: r.engine.statement("adopt"), Args: []any{asked, size, schemas, names, recorded, times, ids},
			Scan: func(rows pgx.Rows) error {
				var name string
				var at position
				var read int
				_, err := pgx.ForEachRow(rows, []any{&name, &at.consumeAfter, &at.id, &read}, func() error {
					if read == size {
						strangers, passed[name] = append(strangers, name), at
					}
					return nil
				})
				return err
			},
		})
		if err != nil {
			return fmt.Errorf("find the parents of tombstones with unknown names: %w", err)
		}
	}
	r.cursors.passOver(passed)
	return nil
}
