package undo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
)

// ErrTwice says that databases number what they keep alike, as one of them is a copy of another: whose rows belong together is not known.
var ErrTwice = errors.New("two databases keep deletions under the same numbers, since one is a copy of the other; " +
	`give the command a configuration with one of them, and the copy numbers of its own by ALTER SEQUENCE "sexton".undo_ids RESTART WITH …`)

// alone refuses a unit of which another database has a set, too: origins travel between databases, and numbers are one database's.
func (e *Engine) alone(ctx context.Context, u *unit) error {
	if len(e.Databases) == 1 {
		return nil
	}
	ids := slices.Collect(maps.Keys(u.by))
	for _, db := range e.Databases {
		rows, _ := db.Pool.Query(ctx, db.Names.Render(text("present")), ids)
		found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return fmt.Errorf("database %s: look for sets of the same numbers: %w", db.Name, err)
		}
		for _, id := range found {
			if first := u.by[id][0].on.Name; first != db.Name {
				return fmt.Errorf("deletion %d, databases %s and %s: %w", u.id, first, db.Name, ErrTwice)
			}
		}
	}
	return nil
}
