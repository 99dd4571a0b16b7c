package undo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// What deletions after one another keep of a row is a chain: each keeps what the one before it has left. Taking a deletion back takes its links out: the
// former value of the last link goes into the row, that of another one into the link behind it.

// follower is a row of a later set that a set has changed before. It fits if it was kept with the values that were written then.
type follower struct {
	set  *set
	at   int32
	fits bool
}

// mostAlike is how many sets a statement reads that looks for followers: it unpacks all of their keys.
const mostAlike = 100

// alike groups sets of one form, which one statement can read together: as the first of each with the others.
func alike(sets []*set) (groups []*set) {
	known := map[string]*set{}
	for _, s := range sets {
		form := fmt.Sprintf("%s %d %q %q %q", s.on.Name, s.layout.ID, s.Fields, s.Changed, s.Via)
		if s.Written != nil {
			form += strconv.Quote(*s.Written) // NULL is not the empty text.
		}
		if first := known[form]; first != nil && len(first.others) < mostAlike-1 {
			first.others = append(first.others, s)
			continue
		}
		one := *s
		known[form], groups = &one, append(groups, &one)
	}
	return groups
}

// numbered are the rows with the numbers of their sets in cmin.
func (s *set) numbered(columns []int) string {
	return s.of([]string{numbering, "u.number AS cmin"}, columns)
}

// follow finds the followers of the rows that a unit has changed. Leases keep workers from adding any.
func (e *Engine) follow(ctx context.Context, u *unit) error {
	changed := slices.DeleteFunc(slices.Clone(u.sets), func(s *set) bool { return len(s.Changed) == 0 || len(s.owned) == 0 })
	for _, before := range alike(changed) {
		later, err := read(ctx, before.on.Pool, before.on, nil, false, before.Relation, before.Changed, before.Number)
		if err != nil {
			return fmt.Errorf("database %s: read what was kept later: %w", before.on.Name, err)
		}
		known := map[int64]*set{}
		for _, s := range slices.Concat(later, u.sets) {
			if s.on.Name == before.on.Name {
				known[s.Number] = s // The unit's own, if it is one: they may come back meanwhile.
			}
		}
		for _, behind := range alike(later) {
			if err := e.keep(ctx); err != nil {
				return err
			}
			if sql := before.pairs(behind); sql != "" {
				if err := e.followers(ctx, before, sql, behind.args(), known); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pairs is the statement that finds the rows of later sets, at $3 and $4, that these have changed before; empty where they keep other columns.
func (s *set) pairs(behind *set) string {
	behind.skip = 2
	keys, fits, own, theirs := make([]string, len(s.KeyCols)), []string{"true"}, []int{}, []int{}
	for i, column := range s.KeyCols {
		keys[i], own, theirs = "r."+pgcatalog.Quote(column), append(own, s.column(column)), append(theirs, behind.column(column))
	}
	there := "pg_catalog.num_nulls(" + strings.Join(keys, ", ") + ") OPERATOR(pg_catalog.=) 0" // What was forgotten has no key.
	key := "ARRAY[" + strings.Join(forms(keys), ", ") + "]"
	for i, column := range s.Changed {
		at := behind.column(column)
		if len(behind.Changed) > 0 && !slices.Contains(behind.Changed, column) {
			fits = append(fits, "false") // It has a part of the columns alone: the row has to come back from there first.
			continue
		}
		// What was deleted or changed by a value that it was given would not have been without.
		same := at >= 0 && behind.Types[at] == s.Types[s.column(column)] && !slices.Contains(behind.Via, column)
		theirs, fits = append(theirs, at), append(fits, strconv.FormatBool(same))
		if same {
			fits = append(fits, s.wrote(i, "r."+pgcatalog.Quote(column), behind.Types[at]))
		}
	}
	if len(keys) == 0 || slices.Contains(slices.Concat(own, theirs), -1) {
		return ""
	}
	return fmt.Sprintf(`SELECT former.number, former.place, next.number, next.place, next.fits
FROM (SELECT r.cmin AS number, r.ctid AS place, %[1]s AS key FROM %[2]s WHERE %[6]s) AS former
JOIN (SELECT r.cmin AS number, r.ctid AS place, %[1]s AS key, %[4]s AS fits FROM %[3]s WHERE %[6]s) AS next
	ON next.key OPERATOR(pg_catalog.=) former.key AND next.number OPERATOR(pg_catalog.>) former.number
WHERE NOT EXISTS (
	SELECT FROM %[5]s AS mark WHERE mark.number OPERATOR(pg_catalog.=) next.number AND next.place OPERATOR(pg_catalog.=) ANY (mark.restored)
)`, key, s.numbered(own), behind.numbered(theirs), strings.Join(fits, " AND "), s.on.Names.Render(`"sexton".undo_marks`), there)
}

func (e *Engine) followers(ctx context.Context, s *set, sql string, more []any, known map[int64]*set) error {
	return e.within(ctx, s.on, func(tx pgx.Tx) error {
		var number, later int64
		var place int32
		var next follower
		rows, _ := tx.Query(ctx, sql, s.args(more...)...)
		_, err := pgx.ForEachRow(rows, []any{&number, &place, &later, &next.at, &next.fits}, func() error {
			of := known[number]
			if of.followers == nil {
				of.followers = map[int32][]follower{}
			}
			next.set = known[later]
			of.followers[place] = append(of.followers[place], next)
			return nil
		})
		return problem.Doing(err, "look for later changes of %s", s.Name)
	})
}

// handed are places of rows whose former values go to later sets, with the places of those rows there.
type handed struct{ places, at []int32 }

// hand divides the places of changed rows: some stay as rows that are the last of their chains, and others are handed to the next link or, where that was
// kept with another value, refused.
func (s *set) hand(wanted []int32) (stay []int32, to map[*set]*handed) {
	to = map[*set]*handed{}
	var refused []int32
	for _, place := range wanted {
		var next, first follower // The first one has handed on what it had, if it is back: whether that fits it was told by.
		for _, one := range s.followers[place] {
			if first.set == nil || one.set.Number < first.set.Number {
				first = one
			}
			if _, back := slices.BinarySearch(one.set.restored, one.at); !back && (next.set == nil || one.set.Number < next.set.Number) {
				next = one
			}
		}
		switch {
		case next.set == nil:
			stay = append(stay, place)
		case !first.fits:
			refused = append(refused, place)
		default:
			if to[next.set] == nil {
				to[next.set] = &handed{}
			}
			to[next.set].places, to[next.set].at = append(to[next.set].places, place), append(to[next.set].at, next.at)
		}
	}
	s.refuse(changedSince, refused)
	return stay, to
}

// handOver has later sets keep the former values.
func (b *back) handOver(ctx context.Context, tx pgx.Tx) error {
	for next, rows := range b.handed {
		var sets []string
		former := *b.set
		former.skip = 2
		for _, column := range b.Changed {
			own, at := b.column(column), next.column(column)
			sets = append(sets, fmt.Sprintf(`c[%d] = (SELECT %s FROM (
	SELECT r.ctid, true AS xmin, CASE WHEN given.place IS NULL THEN %s ELSE given.value END AS %s
	FROM %s LEFT JOIN (
		SELECT pair.at AS place, %s AS value
		FROM ROWS FROM (pg_catalog.unnest($5::pg_catalog.int4[]), pg_catalog.unnest($6::pg_catalog.int4[])) AS pair (own, at)
		JOIN %s ON r.ctid OPERATOR(pg_catalog.=) pair.own
	) AS given ON given.place OPERATOR(pg_catalog.=) r.ctid
) AS gone)`, slices.Index(next.kept(), at)+1, next.inOrder(at), "r."+pgcatalog.Quote(next.Columns[at]), pgcatalog.Quote(column), next.rows(at),
				"r."+pgcatalog.Quote(former.Columns[own]), former.rows(own)))
		}
		sql := fmt.Sprintf("UPDATE %s AS undo SET %s WHERE %s", b.on.Names.Render(`"sexton".undo`), strings.Join(sets, ", "), next.are("undo"))
		if _, err := tx.Exec(ctx, sql, next.args([]int64{b.ID}, []int64{b.Number}, rows.places, rows.at)...); err != nil {
			return fmt.Errorf("correct what was kept of %s later: %w", next.Name, err)
		}
		b.done.places = append(b.done.places, rows.places...)
	}
	b.handed = nil
	return nil
}

// reminder looks for rows that a definition would have changed, had its column not had another value.
type reminder struct {
	check
	parent    *loosefk.Parent
	reference *loosefk.Reference
}

// passed is a row that the clean-up after its parent may have passed over: its place, where it stands, and its parent's key.
type passed struct {
	Place    int32
	Relation uint32
	TID      pgtype.TID
	Key      string
}

// reminders are those of the definitions that the columns of a changed set matter to.
func (e *Engine) reminders(ctx context.Context, u *unit, s *set, f *shape) (found []reminder, _ error) {
	by, _, err := e.reference(ctx, u, s)
	for parent, reference := range loosefk.References(e.Parents[s.on.Name]) {
		matters := slices.ContainsFunc(s.Changed, func(column string) bool {
			name, _ := f.present(&s.layout, s.column(column))
			return slices.Contains(reference.Columns, name) || reference.Action == drain.Assign && reference.Target.Column == name ||
				slices.ContainsFunc(slices.Concat(reference.Conditions, reference.Except), func(v drain.Value) bool { return v.Column == name })
		})
		if matters && reference != by && reference.Usable() && !reference.Remote && reference.Child.OID == f.OID {
			c := loose(parent, reference, f)
			c.more = reference.Restrictions("r", c.args)
			found = append(found, reminder{c, parent, reference})
		}
	}
	return found, err
}

// remind has rows cleaned up after parents that have gone: a clean-up passed over them while the column had another value than the one that is back. What
// that takes is kept with the deletion of those parents. Values are set at once, and in those rows alone; for rows that have to go a worker does it again.
func (e *Engine) remind(ctx context.Context, tx pgx.Tx, u *unit, b *back) error {
	for _, r := range b.reminders {
		values := make([]string, len(r.given))
		for i := range r.given {
			values[i] = r.given[i] + "::" + r.parent.KeyTypes[i]
		}
		sql := fmt.Sprintf("SELECT sexton.n, r.tableoid, r.ctid, %s FROM %s WHERE %s AND %s", keyText(values), r.standing(), r.refers(), r.check.missing(false))
		rows, _ := tx.Query(ctx, sql, b.done.args(&r.check)...)
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[passed])
		if err != nil {
			return fmt.Errorf("look for parents that have gone since: %w", err)
		}
		if len(found) == 0 {
			continue
		}
		gone, err := e.origins(ctx, tx, b.set, &r, each.Of(found, func(p passed) string { return p.Key }))
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(p passed) bool { return gone[p.Key] == nil })
		if len(found) == 0 {
			continue
		}
		// Parents of this deletion may come back yet, and a foreign key is the worker's to ask.
		asks := func(key foreignKey) bool { return slices.Contains(key.Columns, r.reference.Target.Column) }
		own := func(p passed) bool { return u.by[gone[p.Key].ID] != nil }
		if r.reference.Updates() && !slices.ContainsFunc(found, own) && !slices.ContainsFunc(b.shape.keys, asks) {
			err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				missed, err := e.missed(ctx, tx, b, &r, found, gone)
				if err != nil || len(missed) == 0 {
					return err
				}
				return e.cleanUp(ctx, tx, b, &r, missed, gone)
			})
			if _, refused := errors.AsType[*pgconn.PgError](err); !refused {
				if err != nil {
					return fmt.Errorf("clean up after %s: %w", r.parent.Recorded, err)
				}
				continue
			} // The worker's run names what is in the way.
		}
		// Where the clean-up took rows before the value was changed, it has seen the value that is back, or an application has written it since.
		handled, _ := tx.Query(ctx, b.on.Names.Render(text("handled")), ids(gone), r.parent.OID, b.Relation, r.columns, b.Number)
		before, err := pgx.CollectRows(handled, pgx.RowTo[int64])
		if err != nil {
			return fmt.Errorf("look for earlier clean-ups: %w", err)
		}
		maps.DeleteFunc(gone, func(_ string, s *set) bool { return slices.Contains(before, s.ID) })
		keys := slices.Sorted(maps.Keys(gone))
		origins := each.Of(keys, func(key string) int64 { return gone[key].ID })
		if _, err := tx.Exec(ctx, b.on.Names.Render(text("remind")), r.parent.Recorded, r.parent.OID, r.parent.Integer, keys, origins); err != nil {
			return fmt.Errorf("have the clean-up after %s done again: %w", r.parent.Recorded, err)
		}
	}
	return nil
}

// ids are those of sets, each once.
func ids(sets map[string]*set) []int64 {
	all := each.Of(slices.Collect(maps.Values(sets)), func(s *set) int64 { return s.ID })
	slices.Sort(all)
	return slices.Compact(all)
}

// missed are the rows over which a clean-up has passed by a value that was just taken back: the changes that came back last gave them the one that it sets.
// A change that stays, and found them with that one or gave it to them after their parents went, says that it had come to them before.
func (e *Engine) missed(ctx context.Context, tx pgx.Tx, b *back, r *reminder, rows []passed, gone map[string]*set) ([]passed, error) {
	target, to := r.columns[0], r.reference.Target
	is := func(value string) string { return "pg_catalog.num_nonnulls(" + value + ") OPERATOR(pg_catalog.=) 0" }
	if r.reference.Action == drain.Assign {
		target = to.Column
		is = func(value string) string {
			return to.Compare.Equal(value, pgcatalog.Literal(to.Value)+"::"+to.Type) + " IS TRUE"
		}
	}
	at := b.shape.former(&b.layout, target)
	if at < 0 {
		return nil, nil // Its values are not kept.
	}
	column, own, kind := b.Columns[at], *b.set, b.shape.kind(target)
	own.skip = 2
	sets, err := read(ctx, tx, b.on, nil, false, b.Relation, []string{column}, 0)
	if err != nil {
		return nil, fmt.Errorf("read earlier changes: %w", err)
	}
	sets = slices.DeleteFunc(sets, func(s *set) bool {
		return s.Number > b.Number || !slices.Contains(s.Changed, column) || !slices.Equal(s.KeyCols, b.KeyCols) || len(s.Changed) > 1 && s.Written != nil
	})
	type change struct {
		Place    int32
		Number   int64
		Back, Is bool
	}
	changes := map[int32][]change{}
	key := "ARRAY[" + strings.Join(forms(drain.Qualified("r", b.KeyCols)), ", ") + "]"
	for _, group := range alike(sets) {
		written := "NULL"
		if group.Written != nil {
			written = pgcatalog.Literal(*group.Written)
		}
		sql := fmt.Sprintf(`SELECT own.place, former.number, mark.back, %[1]s OR NOT mark.back AND former.was
FROM (SELECT r.cmin AS number, r.ctid AS place, %[2]s AS key, %[3]s AS was FROM %[4]s) AS former
JOIN (SELECT r.ctid AS place, %[2]s AS key FROM %[5]s) AS own ON own.key OPERATOR(pg_catalog.=) former.key
CROSS JOIN LATERAL (SELECT former.number OPERATOR(pg_catalog.=) ANY ($4) OR EXISTS (
	SELECT FROM %[6]s AS mark WHERE mark.number OPERATOR(pg_catalog.=) former.number AND former.place OPERATOR(pg_catalog.=) ANY (mark.restored)
) AS back) AS mark
WHERE own.place OPERATOR(pg_catalog.=) ANY ($5::pg_catalog.int4[])`, is(written+"::"+kind), key, is(group.value(group.column(column), kind)),
			group.numbered(append(each.Of(b.KeyCols, group.column), group.column(column))), own.rows(each.Of(b.KeyCols, own.column)...),
			b.on.Names.Render(`"sexton".undo_marks`))
		args := group.args([]int64{b.ID}, []int64{b.Number}, each.Of(rows, func(p passed) int32 { return p.Place }))
		found, _ := tx.Query(ctx, sql, args...)
		more, err := pgx.CollectRows(found, pgx.RowToStructByPos[change])
		if err != nil {
			return nil, fmt.Errorf("look for earlier changes: %w", err)
		}
		for _, c := range more {
			changes[c.Place] = append(changes[c.Place], c)
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(p passed) bool {
		slices.SortFunc(changes[p.Place], func(a, b change) int { return cmp.Compare(b.Number, a.Number) })
		last, missed := true, !slices.Contains(b.Changed, column)
		for _, c := range changes[p.Place] {
			last = last && c.Back
			missed = (missed || last && c.Is) && (c.Back || !c.Is || c.Number < gone[p.Key].Number)
		}
		return !missed
	}), nil
}

// cleanUp does to rows what the worker would have, and looks where they stand then. It keeps their values whatever max_size says: they are few, and without
// them the other deletion could not come back.
func (e *Engine) cleanUp(ctx context.Context, tx pgx.Tx, b *back, r *reminder, rows []passed, gone map[string]*set) (err error) {
	keep, leaves := &drain.Keep{Exclude: append([]string{}, e.Exclude...)}, map[uint32][]pgtype.TID{}
	if keep.Layout, err = loosefk.LayoutOf(ctx, tx, b.on.Names, r.reference.Child.OID, keep.Exclude, true); err != nil {
		return err
	}
	parents := map[string]*set{}
	for _, p := range rows {
		leaves[p.Relation], parents[p.Key] = append(leaves[p.Relation], p.TID), gone[p.Key]
	}
	keep.Origins = ids(parents)
	keys := drain.Keys{Of: &r.parent.Key, Values: slices.Collect(maps.Keys(parents)), Keep: keep}
	if r.parent.Integer {
		keys.Values = "{" + strings.Join(slices.Collect(maps.Keys(parents)), ",") + "}"
	}
	begin, all := keep.Begin(b.on.Names), pgx.Batch{}
	all.Queue(begin.SQL, begin.Args...)
	batch.QueuePath(&all, b.on.Names)
	for _, leaf := range r.reference.Leaves {
		if len(leaves[leaf.OID]) > 0 {
			sql, args := r.reference.PieceStatement(b.on.Names, leaf, keys, leaves[leaf.OID], false)
			all.Queue(sql, args...)
		}
	}
	all.Queue(ownPath)
	columns, terms := b.byKey(b.shape, "child")
	all.Queue(fmt.Sprintf("SELECT pg_catalog.array_agg(r.ctid), pg_catalog.array_agg(coalesce(child.tableoid, 0::pg_catalog.oid)), "+
		"pg_catalog.array_agg(coalesce(child.ctid::pg_catalog.text, '(0,0)')) FROM %s LEFT JOIN %s AS child ON %s WHERE %s", // Its key may have been set.
		b.rows(columns...), b.shape.Name, strings.Join(terms, " AND "), among), b.args(b.mask(b.done.places))...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&b.done.places, &b.done.relations, &b.done.tids) })
	return tx.SendBatch(ctx, &all).Close()
}

// origins are the newest sets in which parents are kept, by their keys. A parent that no set has may never have been there.
func (e *Engine) origins(ctx context.Context, tx pgx.Tx, b *set, r *reminder, keys []string) (map[string]*set, error) {
	sets, err := read(ctx, tx, b.on, nil, false, r.parent.OID, nil, 0)
	if err != nil {
		return nil, fmt.Errorf("read which parents are kept: %w", err)
	}
	newest, known := map[string]*set{}, map[int64]*set{}
	for _, s := range sets {
		known[s.Number] = s
	}
	for _, group := range alike(sets) {
		at, columns, err := e.keyColumns(ctx, group)
		if err != nil {
			return nil, err
		}
		if len(at) == 0 || len(group.Changed) > 0 {
			continue
		}
		sql := fmt.Sprintf("SELECT %[1]s, r.cmin FROM %[2]s WHERE %[1]s OPERATOR(pg_catalog.=) ANY ($3::pg_catalog.text[])",
			keyText(columns), group.numbered(at))
		var key string
		var number int64
		rows, _ := tx.Query(ctx, sql, group.args(keys)...)
		if _, err := pgx.ForEachRow(rows, []any{&key, &number}, func() error {
			if newest[key] == nil || newest[key].Number < number {
				newest[key] = known[number]
			}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("look for the deletions of parents: %w", err)
		}
	}
	return newest, nil
}
