package cleanup

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
	"sexton/internal/undo"
)

// rotateEvery is the interval at which a process creates the partitions of the coming
// days and drops the partitions of past days.
const rotateEvery = 10 * time.Minute

// keep sets up the references so that statements save the rows that they delete or
// change, if undo is turned on.
func (p *pass) keep(ctx context.Context, parents []*loosefk.Parent) error {
	settings := p.Config.LooseForeignKeys.Undo
	if !settings.On() {
		return nil
	}
	how := dml.Keep{
		Exclude: settings.ExcludeColumns, MaxRow: settings.MaxRow,
		Waits: settings.LargeRows == config.Waits,
	}
	return p.forEachDatabase(ctx, parents, func(db database.Database, conn *pgxpool.Conn) error {
		err := loosefk.Keep(ctx, conn, db.Names, db.Name, parents, how)
		if err == nil {
			p.setFull(db, parents, false)
		}
		return err
	})
}

// setFull chooses the references of a database whose rows are only counted and not saved.
// If all is true, because the saved rows have reached their limit, it chooses every
// reference. Otherwise it chooses the references that delete rows of tables that undo
// does not save.
func (p *pass) setFull(db database.Database, parents []*loosefk.Parent, all bool) {
	for _, reference := range loosefk.References(parents) {
		if child := reference.Child; reference.Keep != nil && reference.Database == db.Name {
			spared := p.Config.LooseForeignKeys.Undo.Spares(db.Names.Tracked, child.Schema, child.Name)
			reference.Keep.Full = all || spared && !reference.Updates()
		}
	}
}

// rotate creates and drops daily partitions every rotateEvery, and checks the limit of
// saved rows. If undo is turned off, it still drops expired partitions, until no database
// has the table undo.
func (p *pass) rotate(ctx context.Context, parents []*loosefk.Parent) error {
	keys := p.Config.LooseForeignKeys
	due, left := p.Memory.rotation(p.db.Name)
	if on := p.Config.Has("undo"); !on && (!due || !left) {
		return nil
	} else if !on {
		left = false
		err := p.forEachDatabase(ctx, parents, func(db database.Database, conn *pgxpool.Conn) error {
			var there bool
			err := conn.QueryRow(ctx,
				db.Names.Render(`SELECT pg_catalog.to_regclass('"sexton".undo') IS NOT NULL`)).Scan(&there)
			if err == nil && there {
				left = true
				_, err = conn.Exec(ctx, db.Names.Render(rotateSQL), time.Duration(0), false)
			}
			return problem.Doing(err, "drop daily partitions")
		})
		p.Memory.with(p.db.Name, func(l *learned) { l.clean = err == nil && !left })
		return err
	}
	return p.forEachDatabase(ctx, parents, func(db database.Database, conn *pgxpool.Conn) error {
		if due {
			if _, err := conn.Exec(ctx, db.Names.Render(rotateSQL), keys.Undo.Keep, true); err != nil {
				return fmt.Errorf("create daily partitions: %w", err)
			}
		}
		if keys.Undo.MaxSize == 0 && !due || !keys.Undo.On() {
			return nil
		}
		size, _, err := undo.Size(ctx, conn, db.Names)
		if err != nil {
			return err
		}
		most := int64(keys.Undo.MaxSize)
		// While the cleanup waits, triggers may save rows up to twice the limit.
		// Otherwise undo could not restore the parents that are deleted meanwhile
		// together with their children.
		triggers := most
		if keys.Undo.WhenFull == config.Waits {
			triggers = 2 * most
		}
		if _, err := conn.Exec(ctx, db.Names.Render(fullSQL), triggers > 0 && size >= triggers); err != nil {
			return fmt.Errorf("record for triggers whether rows are kept: %w", err)
		}
		full := most > 0 && size >= most
		if full {
			p.Logger.ErrorContext(ctx, "undo_max_size_reached",
				"kind", Kind, "database", db.Name, "bytes", size, "when_full", keys.Undo.WhenFull)
			if keys.Undo.WhenFull == config.Waits {
				return fmt.Errorf("database %s keeps %d bytes of deleted rows, and loose_foreign_keys.undo.max_size is %d: "+
					"raise it, lower undo.keep, or set undo.when_full to left_out", db.Name, size, keys.Undo.MaxSize)
			}
		}
		p.setFull(db, parents, full)
		return nil
	})
}

const rotateSQL = `SELECT "sexton".undo_rotate('undo', $1, $2)`

// fullSQL records for the triggers whether the limit of saved rows was reached.
const fullSQL = `UPDATE "sexton".undo_state AS state SET full_since = CASE WHEN $1::boolean THEN pg_catalog.clock_timestamp() END
WHERE (state.full_since IS NULL) OPERATOR(pg_catalog.=) $1::boolean`
