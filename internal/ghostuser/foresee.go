package ghostuser

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// Find returns the key of a user from its text form. It returns an error if the user does
// not exist.
func (p *Plan) Find(ctx context.Context, db dbsqlc.DBTX, key string) (found dml.ID, _ error) {
	sql := fmt.Sprintf("SELECT pg_catalog.to_jsonb(%s) FROM %s AS leaving WHERE %s",
		p.column("leaving"), p.users.SQL(), p.is("leaving", "$1::pg_catalog.text::"+p.key.KeyTypes[0]))
	err := db.QueryRow(ctx, sql, key).Scan(&found)
	if errors.Is(err, pgx.ErrNoRows) {
		return found, fmt.Errorf("there is no user %s", key)
	}
	return found, problem.Doing(err, "find user %s", key)
}

// Foresee counts the rows that refer to a user and the rows that native cascades delete
// with these. It also counts the rows that loose foreign keys delete later. It reads in
// READ ONLY transactions.
func (p *Plan) Foresee(ctx context.Context, db pgcatalog.Beginner, user dml.ID, hardDelete bool,
	loose ...dml.Loose,
) (*dml.Foresight, error) {
	read, steps := dml.ReadOnly(db, dml.ForeseeTime), p.steps(hardDelete)
	seen, all := dml.NewForesight(), dml.NewForesight()
	err := p.countBelow(ctx, db, read, seen, steps, user, nil)
	if err == nil && len(loose) > 0 {
		if err = p.countBelow(ctx, db, read, all, steps, user, loose); err == nil {
			seen.Later(all)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("count rows below: %w", err)
	}
	for _, s := range steps {
		args := &dml.Args{}
		sql := fmt.Sprintf("SELECT pg_catalog.count(*) FROM (SELECT FROM %s WHERE %s LIMIT $%d) AS counted",
			s.FromItem(), p.rows(s, user, args), args.Add(dml.MostForeseen+1))
		var n int64
		if err := read(ctx, batch.Statement{SQL: sql, Args: args.Values, Scan: batch.One(&n)}); err != nil {
			return nil, fmt.Errorf("count rows of %s: %w", s.label, err)
		}
		s.addCount(seen, n)
	}
	return seen, nil
}

// countBelow counts the rows that are deleted or changed because the rows of the deleting
// steps are deleted. If loose is set, it also counts the rows of loose foreign keys to
// the user.
func (p *Plan) countBelow(
	ctx context.Context, db pgcatalog.Beginner, read dml.Reader, seen *dml.Foresight,
	every []*step, user dml.ID, loose []dml.Loose,
) error {
	steps := slices.DeleteFunc(slices.Clone(every), func(s *step) bool { return s.Action != dml.Remove })
	oids := render.Each(steps, func(s *step) uint32 { return s.Child.OID })
	if len(loose) > 0 {
		oids = append(oids, p.users.OID)
	}
	below, err := dml.Below(ctx, db, oids, loose...)
	if err != nil {
		return err
	}
	var windows []*dml.Window
	for _, s := range steps {
		for _, leaf := range s.Leaves {
			sql, args := s.Window(leaf, "picked.ctid, picked.xmin", "",
				dml.Keys{Of: &p.key, Values: dml.KeysOf(p.key.Integer, user)}, dml.MostForeseen)
			rows, err := dml.Select(ctx, read, dml.ScanRow, sql, args...)
			if err != nil && batch.Judge(err).Verdict != batch.Timeout {
				return err
			}
			seen.Capped = seen.Capped || err != nil
			if root := below[s.Child.OID]; root != nil && len(rows) > 0 {
				if w, found := root.Window(leaf.OID, rows); found {
					windows = append(windows, w)
				}
			}
		}
	}
	if users := below[p.users.OID]; users != nil && len(loose) > 0 {
		// The references that are steps are omitted, because Foresee counts their rows by
		// step.
		users.Refs = slices.DeleteFunc(users.Refs, func(f *dml.Ref) bool {
			return f.Constraint != "" || slices.ContainsFunc(every, func(s *step) bool {
				return s.Child.OID == f.Table.OID && slices.Equal(s.Columns, f.Columns)
			})
		})
		for _, leaf := range users.Leaves {
			sql := fmt.Sprintf("SELECT leaving.ctid, leaving.xmin FROM ONLY %s AS leaving WHERE %s", leaf.SQL(),
				p.is("leaving", p.value(1)))
			rows, err := dml.Select(ctx, read, dml.ScanRow, sql, p.key.Argument(user))
			if err != nil {
				return err
			}
			if w, found := users.Window(leaf.OID, rows); found && len(rows) > 0 {
				windows = append(windows, w)
			}
		}
	}
	return seen.Below(ctx, read, p.label, windows...)
}

// addCount adds n rows of the step to the count of the step's action.
func (s *step) addCount(seen *dml.Foresight, n int64) {
	if n > dml.MostForeseen {
		n, seen.Capped = dml.MostForeseen, true
	}
	switch {
	case n == 0:
		return
	case s.Action == dml.Forbid:
		seen.Forbidden = append(seen.Forbidden, fmt.Sprintf("%s: %s", s.label, s.refusal))
		return
	case s.Action == dml.Move:
		seen.Moved[s.tableLabel] += n
	case s.Action == dml.Remove:
		seen.Deleted[s.tableLabel] += n
	default:
		seen.Nullified[s.tableLabel] += n
	}
	seen.Rows += n
}
