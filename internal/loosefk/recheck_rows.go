package loosefk

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/each"
)

// recheck is a batch of parents whose tombstones were removed.
type recheck struct {
	id     int64
	parent string
	// stored is the parent's name in the row, which may be an earlier one.
	stored   string
	integers []int64
	texts    []string
	// early reports that it is not waited for any longer, and expired that this was so for long; open that all older
	// transactions have ended, unrecorded that they have except prepared ones, which are not recorded yet.
	early, expired, open, unrecorded bool
	// forgotten reports that it is not kept any longer where no definition names its parent.
	forgotten bool
	// held reports that only transactions in other databases with children of the parent are waited for.
	held bool
	// looked reports that a finished long look was about it.
	looked bool
}

func (s recheck) keys() int { return len(s.integers) + len(s.texts) }

// page reads the next rows behind an id. It must come in a later statement than the horizons.
func (r *run) page(ctx context.Context, after int64, g horizons) (page []recheck, err error) {
	_, err = r.engine.Session.Run(ctx, r.pageStatement(after, g, &page))
	return page, err
}

func (r *run) pageStatement(after int64, g horizons, page *[]recheck) batch.Statement {
	return batch.Statement{
		SQL:  r.engine.statement("recheckable"),
		Args: []any{r.engine.Database, after, recheckPage, g.horizon, g.far, g.farTables, g.farHorizon},
		Scan: batch.Collect(page, func(row pgx.CollectableRow) (s recheck, err error) {
			var table uint32
			var waited float64
			err = row.Scan(&s.id, &s.parent, &table, &s.integers, &s.texts, &waited, &s.open, &s.unrecorded, &s.held)
			within := r.engine.Confirming.within()
			s.early, s.expired, s.forgotten = waited >= within, waited >= 2*within, waited >= strangersKept.Seconds()
			s.stored = s.parent
			if parent := r.about(s.parent, table); parent != nil {
				s.of(parent)
			}
			return s, err
		}),
	}
}

// about is the parent that a row of this name and table is about, or nil: as with tombstones the table that has the name now and, where no
// definition knows that, the table itself.
func (r *run) about(name string, table uint32) (found *Parent) {
	for _, parent := range r.engine.Parents {
		switch {
		case parent.Recorded == name:
			return parent
		case table != 0 && parent.OID == table:
			found = parent
		}
	}
	return found
}

// of gives a row to a parent, with its keys in the form that the parent's have now.
func (s *recheck) of(parent *Parent) {
	s.parent = parent.Recorded
	switch {
	case parent.Integer && s.integers == nil:
		s.integers = []int64{}
		for _, key := range s.texts {
			if n, err := strconv.ParseInt(key, 10, 64); err == nil { // No row of the parent has the others.
				s.integers = append(s.integers, n)
			}
		}
		s.texts = nil
	case !parent.Integer && s.texts == nil:
		s.texts = each.Of(s.integers, func(key int64) string { return strconv.FormatInt(key, 10) })
		s.integers = nil
	}
}

// change runs a statement on rows of this database in the recheck queue: forget removes them, and record_prepared records the prepared transactions for
// rows behind the first horizon, of which the ones that have ended since need not be waited for. hold keeps them, and all due rows of a parent, from
// being looked at for some seconds.
func (r *run) change(ctx context.Context, name string, ids []int64, more ...any) error {
	_, err := r.engine.Session.Run(ctx, batch.Statement{SQL: r.engine.statement(name), Args: append([]any{r.engine.Database, ids}, more...)})
	return err
}

// parent is the one that rows are about, or nil where there is none.
func (r *run) parent(s recheck) *Parent {
	for _, parent := range r.engine.Parents {
		if parent.Recorded == s.parent {
			return parent
		}
	}
	return nil
}

// keysOf are the keys of rows of the parent.
func (p *Parent) keysOf(rows []recheck) any {
	var integers []int64
	var texts []string
	for _, s := range rows {
		integers, texts = append(integers, s.integers...), append(texts, s.texts...)
	}
	if p.Integer {
		return integers
	}
	return texts
}

func idsOf(rows []recheck) []int64 { return each.Of(rows, func(s recheck) int64 { return s.id }) }
