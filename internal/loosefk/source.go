package loosefk

import (
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

//go:embed queries
var queries embed.FS

// statement returns a query of the folder queries by name. The caller renders it for the
// configured schemas.
func statement(name string, more ...string) string {
	return pgcatalog.Texts{Files: queries}.Statement(name, more...)
}

// source is the queue of tombstones of one database. It implements drain.Source.
type source struct {
	names pgcatalog.Names
	// database is the name of the database. remotes are the other databases with
	// children.
	database string
	remotes  map[string]*Remote
	// parents are the resolved parents. bound are the same parents with an edge for each
	// leaf of their references. references maps each edge to its reference.
	parents    []*Parent
	bound      []*drain.Parent
	references map[*drain.Edge]*Reference
	// fingerprint and confirmAfter are copies of the fields of Engine.
	fingerprint  string
	confirmAfter time.Duration
	// failed records an error in the statistics. counted adds counts of tombstones to the
	// statistics.
	failed  func(f batch.Fault)
	counted func(parent string, more ParentCounts)

	// origins reports that the table of tombstones has the column origin.
	origins atomic.Bool
	// loadedOnce reports that the first load has compared the fingerprint.
	loadedOnce bool
	// recheckDue reports that a removed tombstone is old enough for a recheck. marked
	// reports that a tombstone is marked for a recheck now.
	recheckDue, marked bool
}

func (s *source) text(name string, more ...string) string {
	return s.names.Render(statement(name, more...))
}

// Load returns due tombstones. If a tombstone's key does not fit the parent's key
// columns, Load records an attempt for it. The first call also compares the fingerprint
// of the tables, and finds the tables with a trigger, rule or policy that may prevent the
// deletion of rows.
func (s *source) Load(ctx context.Context, on *batch.Session, from []drain.LoadPosition, limit int,
	recheck bool,
) (map[*drain.Parent][]drain.Tombstone, error) {
	query, fingerprint, keeps, origins := "load", s.fingerprint, []uint32{}, s.origins.Load()
	if recheck {
		query = "load_rechecks"
	}
	byName := map[string]*drain.Parent{}
	names, times, ids := make([]string, len(from)), make([]pgtype.Timestamptz, len(from)), make([]int64, len(from))
	for i, spot := range from {
		byName[spot.Parent.Name] = spot.Parent
		names[i], times[i], ids[i] = spot.Parent.Name, spot.After.ConsumeAfter, spot.After.ID
	}
	found, misfits := map[*drain.Parent][]drain.Tombstone{}, map[*drain.Parent][]drain.Tombstone{}
	var installed bool
	statements := []batch.Statement{
		{
			SQL:  s.text(query, "origin", undoColumns(origins).value("tombstone.origin", "bigint")),
			Args: []any{names, times, ids, limit},
			Scan: func(rows pgx.Rows) error {
				clear(found)
				clear(misfits)
				return scan(rows, byName, recheck, found, misfits)
			},
		},
		{
			SQL: s.text("recheckable"), Args: []any{s.database, s.confirmAfter.Seconds(), s.parentNames()},
			Scan: batch.One(&s.recheckDue, &s.marked, &installed),
		},
	}
	if !s.loadedOnce {
		statements = append(statements, batch.Statement{
			SQL: statement("may_keep"), Args: []any{s.leaves()},
			Scan: batch.Collect(&keeps, pgx.RowTo[uint32]),
		})
		if s.fingerprint != "" {
			tables := tablesIn(s.database, s.parents)
			statements = append(statements, batch.Statement{
				SQL: statement("fingerprint"), Args: []any{tables},
				Scan: batch.One(&fingerprint),
			})
		}
	}
	limits := on.Limits
	limits.Reads, limits.Own = true, true
	if _, err := on.RunWithin(ctx, limits, statements...); err != nil {
		return nil, err //nolint:wrapcheck // The pass names it.
	}
	if s.origins.Store(installed); installed != origins {
		return s.Load(ctx, on, from, limit, recheck)
	}
	if fingerprint != s.fingerprint {
		return nil, ErrChanged
	}
	if !s.loadedOnce {
		s.loadedOnce = true
		for e := range s.references {
			e.MayKeep = e.Database == "" && slices.Contains(keeps, e.Leaf.OID)
		}
	}
	for parent, tombstones := range misfits {
		f := batch.Fault{Table: parent.Label(), Message: "the tombstone's key is not of the type of column " +
			strings.Join(parent.KeyColumns, ", ")}
		s.failed(f)
		if _, err := s.Fail(ctx, on, parent, tombstones, f, 0); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// parentNames returns the parents' names as tombstones record them.
func (s *source) parentNames() []string {
	return render.Each(s.bound, func(p *drain.Parent) string { return p.Name })
}

// undoColumns is true if the tables have the columns that undo needs: the table of
// tombstones has the column origin, and the table swept has the column origins.
type undoColumns bool

// value returns the expression origin if the column exists, or else a NULL of the type
// kind.
func (exist undoColumns) value(origin, kind string) string {
	if exist {
		return origin
	}
	return "NULL::" + kind
}

// list returns a list of columns or values, followed by origin if the column exists.
func (exist undoColumns) list(list, origin string) string {
	if exist {
		return list + ", " + origin
	}
	return list
}

// leaves returns the OIDs of the edges' tables in this database.
func (s *source) leaves() (oids []uint32) {
	for e := range s.references {
		if e.Database == "" && e.Leaf.OID != 0 {
			oids = append(oids, e.Leaf.OID)
		}
	}
	return oids
}

// scan reads tombstones into found, or into misfits if their key does not fit the parent.
func scan(rows pgx.Rows, byName map[string]*drain.Parent, recheck bool, found,
	misfits map[*drain.Parent][]drain.Tombstone,
) error {
	var name string
	var id int64
	var after pgtype.Timestamptz
	var integer *int64
	var text *string
	var age float64
	var origin *int64
	_, err := pgx.ForEachRow(rows, []any{&name, &id, &after, &integer, &text, &age, &origin}, func() error {
		parent := byName[name]
		t := drain.Tombstone{
			Position: drain.Position{ConsumeAfter: after, ID: id}, Recheck: recheck,
			Made: time.Now().Add(-time.Duration(age * float64(time.Second))),
		}
		if origin != nil {
			number := *origin
			t.Origin = &number
		}
		if integer != nil {
			t.Integer = *integer
		}
		if text != nil {
			t.Text = *text
		}
		if fits(parent, integer, text, rows.Conn().TypeMap()) {
			found[parent] = append(found[parent], t)
		} else {
			misfits[parent] = append(misfits[parent], t)
		}
		return nil
	})
	return err
}

// fits reports whether a tombstone's key has the type and number of columns of the
// parent's key. A key that does not fit was recorded when the definitions named other
// columns. The table has no CHECK that exactly one of the two key columns is set, since
// each DELETE of a parent would pay for it.
func fits(parent *drain.Parent, integer *int64, text *string, types *pgtype.Map) bool {
	if (integer != nil) != parent.Integer || (text != nil) == parent.Integer {
		return false
	}
	if !parent.Composite() {
		return true
	}
	var columns []string
	err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(*text), &columns)
	return err == nil && len(columns) == len(parent.KeyColumns)
}

// positions returns the ids and the times consume_after of tombstones as parallel arrays.
// Statements find the tombstones in their index by these values.
func positions(tombstones []drain.Tombstone) (ids []int64, times []pgtype.Timestamptz) {
	ids = render.Each(tombstones, func(t drain.Tombstone) int64 { return t.ID })
	return ids, render.Each(tombstones, func(t drain.Tombstone) pgtype.Timestamptz { return t.ConsumeAfter })
}

// Complete returns the statement that removes tombstones after their children were
// deleted or changed, or because the parent row exists again. The statement stores keys
// without a parent row in the table swept, for a recheck.
//
// Earlier statements of the same transaction have deleted or changed all children that
// they could see. If check is true, a trigger or rule may have prevented the deletion of
// children or inserted children, so the statement does not remove tombstones that still
// have children.
//
// The key of a marked tombstone is only stored again if the recheck found a child, which
// the setting sexton.late records.
func (s *source) Complete(p *drain.Parent, tombstones []drain.Tombstone, check bool,
	done *drain.Removed,
) batch.Statement {
	args := &dml.Args{}
	ids, times := positions(tombstones)
	nameAt, idsAt, timesAt := args.Add(p.Name), args.Add(ids), args.Add(times)
	key := p.OfTombstone("tombstone")
	where := "true"
	if check {
		keysAt, checked := args.Once(keysOf(p, tombstones)), map[*dml.Edge]bool{}
		for _, e := range p.Edges {
			if e.Database != "" || checked[e.Edge] {
				continue
			}
			checked[e.Edge] = true
			keys := ""
			if !e.Index && !p.Composite() {
				keys = p.Parameter(keysAt())
			}
			where += " AND NOT " + e.Remain(p.Key, key, keys, args)
		}
		where = "NOT " + p.Without(key) + "\n\tOR " + where
	}
	table := s.names.Render(`"public".loose_foreign_keys_deleted_records`)
	undo := undoColumns(s.origins.Load())
	returned := undo.list("target.id, target.status, target.primary_key_value, target.primary_key_text, NOT "+
		p.Without(p.OfTombstone("target"))+" AS lives", "target.origin")
	columns := undo.list("database, parent, parent_oid, integer_keys, text_keys", "origins")
	values := undo.list(fmt.Sprintf(`$%d::pg_catalog.text, $%d::pg_catalog.text, $%d::pg_catalog.oid,
	pg_catalog.array_agg(removed.primary_key_value) FILTER (WHERE removed.primary_key_value IS NOT NULL),
	pg_catalog.array_agg(removed.primary_key_text) FILTER (WHERE removed.primary_key_text IS NOT NULL)`,
		args.Add(s.database), nameAt, args.Add(p.OID)), "pg_catalog.array_agg(removed.origin)")
	sql := fmt.Sprintf(`WITH removed AS (
DELETE FROM %[1]s AS target
WHERE target.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(
	SELECT tombstone.ctid
	FROM ROWS FROM (pg_catalog.unnest($%[2]d::bigint[]), pg_catalog.unnest($%[3]d::pg_catalog.timestamptz[])) AS finished (id, consume_after)
	CROSS JOIN LATERAL (
		SELECT pending.ctid, pending.primary_key_value, pending.primary_key_text
		FROM %[1]s AS pending
		WHERE pending.fully_qualified_table_name OPERATOR(pg_catalog.=) $%[4]d
		AND pending.consume_after OPERATOR(pg_catalog.=) finished.consume_after
		AND pending.id OPERATOR(pg_catalog.=) finished.id
		OFFSET 0
	) AS tombstone
	WHERE %[5]s
))
RETURNING %[6]s
), remembered AS (
INSERT INTO %[7]s (%[8]s)
SELECT %[9]s
FROM removed
WHERE NOT removed.lives AND (removed.status OPERATOR(pg_catalog.=) 1 OR pg_catalog.current_setting('sexton.late', true) OPERATOR(pg_catalog.=) 'true')
HAVING pg_catalog.count(*) OPERATOR(pg_catalog.>) 0
)
SELECT removed.id, removed.lives FROM removed`, table, idsAt, timesAt, nameAt, where, returned, s.names.Render(`"sexton".swept`), columns, values)
	return batch.Statement{SQL: sql, Args: args.Values, Scan: func(rows pgx.Rows) error {
		found := drain.Removed{}
		var id int64
		var lives bool
		_, err := pgx.ForEachRow(rows, []any{&id, &lives}, func() error { found[id] = lives; return nil })
		*done = found
		return err
	}}
}

// keysOf returns the keys of tombstones as a parameter: []int64 or []string.
func keysOf(p *drain.Parent, tombstones []drain.Tombstone) any {
	if p.Integer {
		return render.Each(tombstones, func(t drain.Tombstone) int64 { return t.Integer })
	}
	return render.Each(tombstones, func(t drain.Tombstone) string { return t.Text })
}

// Fail records f as the last error of unfinished tombstones. If after is positive, they
// are deferred for that duration without an attempt. Otherwise they get an attempt. Fail
// returns the number of tombstones that still exist.
func (s *source) Fail(
	ctx context.Context, on *batch.Session, p *drain.Parent, tombstones []drain.Tombstone, f batch.Fault,
	after time.Duration,
) (recorded int64, _ error) {
	ids, times := positions(tombstones)
	var deferred int64
	var wait *float64
	if after > 0 {
		seconds := after.Seconds()
		wait = &seconds
	}
	_, err := on.RunOwn(ctx, batch.Statement{
		SQL: s.text("record_failure"), Args: []any{p.Name, ids, times, f.Text(), f.Verdict == batch.Unfinished, wait},
		Scan: batch.One(&deferred, &recorded),
	})
	if err != nil {
		return 0, err //nolint:wrapcheck // The pass names it.
	}
	s.counted(p.Label(), ParentCounts{Rescheduled: deferred, Incremented: recorded - deferred})
	return recorded, nil
}

// Recheck marks the keys of removed tombstones for a recheck if no transaction is open
// that may still insert a child. It returns the number of marked tombstones. If
// tombstones are marked already, it returns 1 and marks no more.
func (s *source) Recheck(ctx context.Context, on *batch.Session) (int64, error) {
	if s.marked {
		s.marked = false
		return 1, nil
	}
	if !s.recheckDue {
		return 0, nil
	}
	s.recheckDue = false
	horizons, err := s.horizons(ctx, on)
	if err != nil {
		return 0, err
	}
	var names []string
	var oids []uint32
	var times []pgtype.Timestamptz
	for _, p := range s.bound {
		horizon := pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
		for _, e := range p.Edges {
			if at, remote := horizons[e.Database]; remote &&
				(horizon.InfinityModifier == pgtype.Infinity || at.Before(horizon.Time)) {
				horizon = pgtype.Timestamptz{Time: at, Valid: true}
			}
		}
		names, oids, times = append(names, p.Name), append(oids, p.OID), append(times, horizon)
	}
	undo := undoColumns(s.origins.Load())
	sql := s.text("recheck", "origins", undo.value("removed.origins", "bigint[]"),
		"columns", undo.list("fully_qualified_table_name, status, consume_after, primary_key_value, primary_key_text",
			"origin"),
		"values", undo.list("taken.name, 2, 'infinity', key.integer_key, key.text_key", "key.origin"))
	var moved int64
	_, err = on.RunOwn(ctx,
		batch.Statement{
			SQL: sql, Args: []any{s.database, s.confirmAfter.Seconds(), names, oids, times},
			Scan: batch.One(&moved),
		},
		batch.Statement{SQL: s.text("forget"), Args: []any{s.database}})
	return moved, err //nolint:wrapcheck // The pass names it.
}

// horizons returns the horizon of each other database with children, by this server's
// clock. It subtracts the age of the oldest transaction in the other database from the
// time here, since the clocks of two servers cannot be compared. The horizon of an
// unreachable database is the zero time.
func (s *source) horizons(ctx context.Context, on *batch.Session) (map[string]time.Time, error) {
	found := map[string]time.Time{}
	for e := range s.references {
		name := e.Database
		if _, known := found[name]; known || name == "" {
			continue
		}
		remote := s.remotes[name]
		found[name] = time.Time{}
		if remote == nil || remote.Session == nil {
			continue
		}
		var now time.Time
		if _, err := on.RunOwn(ctx, batch.Statement{
			SQL:  "SELECT pg_catalog.clock_timestamp()",
			Scan: batch.One(&now),
		}); err != nil {
			return nil, err //nolint:wrapcheck // The pass names it.
		}
		var seconds float64
		_, err := remote.Session.RunOwn(ctx, batch.Statement{
			SQL:  statement("open"),
			Args: []any{s.confirmAfter.Seconds()}, Scan: batch.One(&seconds),
		})
		if err == nil {
			found[name] = now.Add(-time.Duration(seconds * float64(time.Second)))
		}
	}
	return found, nil
}

// Lacking returns the privilege on an edge's table that the role lacks, with the SQL that
// grants it, or "".
func (s *source) Lacking(ctx context.Context, on *batch.Session, e *drain.Edge) string {
	reference := s.references[e]
	missing, tables, err := missingPrivileges(ctx, on.Conn, reference.Database, s.parents)
	if err != nil {
		return "" // The pass then reports the error of the statement that failed.
	}
	for i, lack := range missing {
		if tables[i].reference == reference && (tables[i].oid == e.Leaf.OID || tables[i].oid == reference.Child.OID) {
			return lack.Message + ": " + lack.Fix
		}
	}
	return ""
}

// Unreadable returns the privilege that the role lacks to read the parent, with the SQL
// that grants it, or "".
func (s *source) Unreadable(ctx context.Context, on *batch.Session, p *drain.Parent) (string, error) {
	i := slices.IndexFunc(s.parents, func(parent *Parent) bool { return parent.Recorded == p.Name })
	lacking, err := UnreadableParents(ctx, on.Conn, s.parents[i:i+1])
	if err != nil || len(lacking) == 0 {
		return "", err
	}
	return lacking[0].Message + ": " + lacking[0].Fix, nil
}
