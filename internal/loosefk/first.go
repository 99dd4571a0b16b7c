package loosefk

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
)

// First is the look that a run begins with: which parents have due tombstones, those tombstones unless there are too many, and whether the
// tables are as they were bound. It may come ahead of the run, in the round trip that begins its lease.
type First struct {
	*batch.Ahead

	engine *Engine
	at     spots
	// most bounds loaded, due are the parents that have due tombstones behind their position.
	most           int
	due, strangers []string
	loaded         []loaded
	fingerprint    string
}

// spots are positions in the queues of parents, by their names in tombstones.
type spots struct {
	names []string
	at    []position
}

func (s spots) args() []any {
	times, ids := arrays(s.at)
	return []any{s.names, times, ids}
}

// loaded is a tombstone with the name of its parent.
type loaded struct {
	tombstone

	name string
}

// First returns the first look of a run of this engine under the lease of a key, for its holder to take along.
func (e *Engine) First(key string) *First {
	f := e.first(spots{each.Of(e.Parents, func(p *Parent) string { return p.Recorded }), e.Cursors.start(e.Parents)})
	f.Ahead.Names, f.Ahead.Key, f.Ahead.Limits = e.Session.Names, key, e.Session.Limits
	return f
}

func (e *Engine) first(at spots) *First {
	f := &First{engine: e, at: at, most: e.loads(e.Parents...), fingerprint: e.Fingerprint}
	f.Ahead = &batch.Ahead{Statements: []batch.Statement{
		{SQL: e.statement("queues_due"), Args: at.args(), Scan: batch.Collect(&f.due, pgx.RowTo[string])},
		e.loading(at, f.most, &f.loaded),
		{SQL: e.Session.Names.Render(strangersSQL), Args: []any{at.names}, Scan: batch.Collect(&f.strangers, pgx.RowTo[string])},
	}}
	if e.Fingerprint != "" {
		tables := tablesIn(e.Database, e.Parents)
		f.Statements = append(f.Statements, batch.Statement{SQL: statement("fingerprint"), Args: []any{tables}, Scan: batch.One(&f.fingerprint)})
	}
	return f
}

// of reports whether the look was taken under the lease of a run, at the positions where that begins.
func (f *First) of(r *run) bool {
	e := r.engine
	return f != nil && f.Token() == e.Session.Fence.Token() && f.engine.Fingerprint == e.Fingerprint && slices.Equal(f.engine.Parents, e.Parents) &&
		!slices.ContainsFunc(r.queues, func(l *queue) bool {
			at := f.at.at[slices.Index(f.at.names, l.parent.Recorded)]
			return at.less(l.after) || l.after.less(at)
		})
}

// begin takes the first look, unless it was taken ahead.
func (r *run) begin(ctx context.Context) error {
	first := r.engine.Look
	if !first.of(r) {
		first = r.engine.first(r.positions())
		limits := r.engine.Session.Limits
		limits.Reads = true
		if _, err := r.engine.Session.RunWithin(ctx, limits, first.Statements...); err != nil {
			return fmt.Errorf("look for due tombstones: %w", err)
		}
	}
	if first.fingerprint != r.engine.Fingerprint {
		return ErrChanged
	}
	r.asked, r.closing = time.Now(), nil
	r.fill(first.loaded)
	if len(first.strangers) > 0 {
		if err := r.adopt(ctx, first.strangers); err != nil {
			return fmt.Errorf("look for due tombstones: %w", err)
		}
		return r.due(ctx)
	}
	r.drained(first.due, len(first.loaded) < first.most)
	return nil
}

//go:embed queries
var queries embed.FS

// statement is a text of the folder queries, to be rendered for the configured schemas.
func statement(name string, more ...string) string {
	return pgcatalog.Texts{Files: queries}.Statement(name, more...)
}

// statement is one of them, rendered for the engine.
func (e *Engine) statement(name string, more ...string) string {
	return e.Session.Names.Render(statement(name, more...))
}

// loading is the statement that loads tombstones of parents behind positions.
func (e *Engine) loading(at spots, most int, into *[]loaded) batch.Statement {
	var one loaded
	var age float64
	origin, row := "", []any{&one.name, &one.id, &one.consumeAfter, &one.tuple, &one.integer, &one.text, &age}
	if e.Undo {
		origin, row = ", tombstone.origin", append(row, &one.origin)
	}
	return batch.Statement{
		SQL: e.statement("load", "origin", origin), Args: append(at.args(), most),
		Scan: func(rows pgx.Rows) error {
			*into = nil
			_, err := pgx.ForEachRow(rows, row, func() error {
				one.made = time.Now().Add(-time.Duration(age * float64(time.Second)))
				*into = append(*into, one)
				return nil
			})
			return err
		},
	}
}

// fill gives queues the tombstones that were loaded for them.
func (r *run) fill(found []loaded) {
	for _, t := range found {
		l := r.queues[slices.IndexFunc(r.queues, func(l *queue) bool { return l.parent.Recorded == t.name })]
		l.after, l.loaded = t.position, true
		if l.parent.fits(t.tombstone, r.engine.Session.Conn.TypeMap()) {
			l.fresh = append(l.fresh, t.tombstone)
		} else {
			l.foreign = append(l.foreign, t.tombstone)
		}
	}
}

// strangersSQL lists the names of waiting tombstones that are not among $1.
const strangersSQL = "SELECT parent.name FROM (" + dbsqlc.TombstoneParentsSQL + ") AS parent\n" +
	"WHERE parent.name OPERATOR(pg_catalog.<>) ALL ($1::pg_catalog.text[])"

// positions are where the queues have come to.
func (r *run) positions() spots {
	return spots{each.Of(r.queues, func(l *queue) string { return l.parent.Recorded }), each.Of(r.queues, func(l *queue) position { return l.after })}
}
