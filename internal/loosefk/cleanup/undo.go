package cleanup

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/drain"
	"sexton/internal/loosefk"
)

// rotateEvery is how often a process makes the partitions of coming days and drops those of past ones.
const rotateEvery = 10 * time.Minute

// everywhere calls do for the pass's database and the others that its parents have children in.
func (w *Work) everywhere(
	ctx context.Context, db database.Database, conn *pgxpool.Conn, elsewhere *others, parents []*loosefk.Parent,
	do func(db database.Database, conn *pgxpool.Conn) error,
) error {
	if err := do(db, conn); err != nil {
		return err
	}
	elsewhere.ask(ctx, parents, func(other string, reached *pgxpool.Conn) error { return do(w.database(other), reached) })
	return nil
}

// keep has the references keep what they take, where the configuration says so.
func (w *Work) keep(ctx context.Context, db database.Database, conn *pgxpool.Conn, elsewhere *others, parents []*loosefk.Parent) error {
	undo := w.Config.LooseForeignKeys.Undo
	if !undo.On() {
		return nil
	}
	how := drain.Keep{Exclude: undo.Exclude, MaxRow: undo.MaxRow, Waits: undo.LargeRows == config.Waits}
	return w.everywhere(ctx, db, conn, elsewhere, parents, func(db database.Database, conn *pgxpool.Conn) error {
		return loosefk.Keep(ctx, conn, db.Names, db.Name, parents, how)
	})
}

// rotate makes and drops partitions now and then, and notes where what is kept has reached its limit.
func (w *Work) rotate(ctx context.Context, db database.Database, conn *pgxpool.Conn, elsewhere *others, parents []*loosefk.Parent) error {
	keys := w.Config.LooseForeignKeys
	if !w.Config.Has("undo") {
		return nil
	}
	due := w.Memory.rotates(db.Name)
	return w.everywhere(ctx, db, conn, elsewhere, parents, func(db database.Database, conn *pgxpool.Conn) error {
		if due {
			if _, err := conn.Exec(ctx, db.Names.Render(`SELECT "sexton".undo_rotate('undo', $1), "sexton".undo_rotate('batches', $2)`),
				keys.Undo.Keep, keys.AuditKeep); err != nil {
				return fmt.Errorf("make partitions by day: %w", err)
			}
		}
		if keys.Undo.MaxSize == 0 || !keys.Undo.On() {
			return nil
		}
		var size int64
		if err := conn.QueryRow(ctx, db.Names.Render(sizeSQL)).Scan(&size); err != nil {
			return fmt.Errorf("measure what is kept: %w", err)
		}
		full := size >= int64(keys.Undo.MaxSize)
		if full {
			w.Logger.ErrorContext(ctx, "kept rows have reached loose_foreign_keys.undo.max_size",
				"kind", Kind, "database", db.Name, "bytes", size, "when_full", keys.Undo.WhenFull)
			if keys.Undo.WhenFull == config.Waits {
				return fmt.Errorf("database %s keeps %d bytes of deleted rows, and loose_foreign_keys.undo.max_size is %d: "+
					"raise it, lower undo.keep, or set undo.when_full to left_out", db.Name, size, keys.Undo.MaxSize)
			}
		}
		for _, parent := range parents {
			for _, reference := range parent.References {
				if reference.Keep != nil && reference.Database == db.Name {
					reference.Keep.Full = full
				}
			}
		}
		return nil
	})
}

const sizeSQL = `SELECT coalesce(pg_catalog.sum(pg_catalog.pg_total_relation_size(part.inhrelid)), 0)::bigint
FROM pg_catalog.pg_inherits AS part
WHERE part.inhparent OPERATOR(pg_catalog.=) pg_catalog.to_regclass('"sexton".undo')`
