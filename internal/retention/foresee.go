package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// explained is a node of a plan in EXPLAIN's JSON format.
type explained struct {
	Index string      `json:"Index Name"`
	Node  string      `json:"Node Type"`
	Plans []explained `json:"Plans"`
}

// index returns the name of the index that returns due rows of a leaf in order. It
// returns "" if the planner uses no such index.
func (r *rule) index(ctx context.Context, read dml.Reader, leaf pgcatalog.Table, cutoff any) (string, error) {
	sql, args := r.window(leaf, cutoff, position{}, 1)
	var text []byte
	err := read(ctx,
		batch.Statement{SQL: "SELECT " + batch.IndexScans, Scan: batch.One(new(string))},
		batch.Statement{SQL: "EXPLAIN (FORMAT JSON) " + sql, Args: args, Scan: batch.One(&text)})
	if err != nil {
		return "", err
	}
	var plans []struct {
		Plan explained `json:"Plan"`
	}
	if err := json.Unmarshal(text, &plans); err != nil || len(plans) == 0 {
		return "", fmt.Errorf("read the plan of a query: %w", err)
	}
	for node := plans[0].Plan; ; node = node.Plans[0] {
		switch {
		case node.Node == "Index Scan" || node.Node == "Index Only Scan":
			return node.Index, nil
		case node.Node != "Limit" && node.Node != "Result" && node.Node != "LockRows" || len(node.Plans) == 0:
			// A sort, bitmap scan or sequential scan: no index returns the rows in order.
			return "", nil
		}
	}
}

// Foreseen describes what the next pass would do for a rule.
type Foreseen struct {
	Rule string `json:"rule"`
	// Due counts due rows, up to 10,000.
	Due    int64 `json:"due"`
	Capped bool  `json:"due_capped"`
	// Oldest is the column's value in the oldest due row, as text.
	Oldest string `json:"oldest,omitempty"`
	// Index is the index that finds due rows. It is empty if a leaf has no such index.
	Index string `json:"index,omitempty"`
	// Below are the tables whose rows are also deleted. Blocking are texts about the
	// foreign keys that prevent deletions.
	Below    []string `json:"deletes_below,omitempty"`
	Blocking []string `json:"blocking,omitempty"`
	// Whole reports whether all rows of the table are due. OldLeaves are the partitions
	// in which all rows are due.
	Whole     bool      `json:"whole_table,omitempty"`
	OldLeaves []OldLeaf `json:"old_partitions,omitempty"`
	DryRun    bool      `json:"dry_run,omitempty"`
	// Unknown is the error of a query that failed. The fields that need that query are
	// missing.
	Unknown string `json:"unknown,omitempty"`

	key    string
	create []string
}

// OldLeaf is a partition in which all rows are due.
type OldLeaf struct {
	Partition string `json:"partition"`
	SQL       string `json:"sql"`
}

// Foresee returns what a pass would do if it began now. It only reads. If a query takes
// too long, its result is missing.
func (p *Plan) Foresee(ctx context.Context, db pgcatalog.Beginner, statementTime time.Duration) ([]Foreseen, error) {
	read := dml.ReadOnly(db, statementTime)
	now, err := dml.Select(ctx, read, pgx.RowTo[time.Time], "SELECT pg_catalog.statement_timestamp()")
	if err != nil {
		return nil, err
	}
	all := make([]Foreseen, 0, len(p.rules))
	for _, r := range p.rules {
		seen, err := r.foresee(ctx, read, now[0])
		if f := batch.Judge(err); err != nil && (f.Verdict == batch.Fatal || ctx.Err() != nil) {
			return nil, fmt.Errorf("examine %s: %w", r, err)
		} else if err != nil {
			seen.Unknown = f.Text()
		}
		all = append(all, *seen)
	}
	return all, nil
}

func (r *rule) foresee(ctx context.Context, read dml.Reader, now time.Time) (*Foreseen, error) {
	seen, cutoff := &Foreseen{Rule: r.String(), DryRun: r.DryRun, key: r.key}, r.cutoff(now)
	for _, t := range append([]*dml.Table{r.table}, r.below...) {
		if t != r.table {
			seen.Below = append(seen.Below, t.Label())
		}
		for _, f := range t.Refs {
			if f.Action == dml.Forbid {
				seen.Blocking = append(seen.Blocking, f.Blocks(t))
			}
		}
	}
	missing := false
	for _, leaf := range r.edge.Leaves {
		index, err := r.index(ctx, read, leaf, cutoff)
		if err != nil {
			return seen, err
		}
		if index == "" {
			seen.create = append(seen.create, r.createIndex(leaf))
		}
		seen.Index, missing = index, missing || index == ""
	}
	if missing {
		seen.Index = ""
	}
	var first any
	for _, leaf := range r.edge.Leaves {
		sql, args := r.oldest(leaf, cutoff, position{})
		found, err := dml.Select(ctx, read, pgx.RowTo[any], sql, args...)
		if err != nil {
			return seen, err
		}
		if len(found) > 0 && (seen.Oldest == "" || compare(finite(found[0]), first) < 0) {
			first, seen.Oldest = finite(found[0]), shownValue(found[0])
		}
	}
	args := &dml.Args{}
	counted, err := dml.Select(ctx, read, pgx.RowTo[int64], r.countSQL(cutoff, args), args.Values...)
	if err != nil {
		return seen, err
	}
	seen.Due, seen.Capped = min(counted[0], mostCounted-1), counted[0] >= mostCounted
	if seen.Due == 0 {
		return seen, nil
	}
	if seen.Whole, err = r.allDue(ctx, read, r.edge.FromItem(), cutoff); err != nil || len(r.edge.Leaves) == 1 &&
		!r.edge.Partitioned() {
		return seen, err
	}
	for _, leaf := range r.edge.Leaves {
		if all, err := r.allDue(ctx, read, "ONLY "+leaf.SQL()+" AS child", cutoff); err != nil || !all {
			if err != nil {
				return seen, err
			}
			continue
		}
		sql, err := dml.Select(ctx, read, pgx.RowTo[string], dropSQL, leaf.OID)
		if err != nil {
			return seen, err
		}
		if len(sql) > 0 {
			seen.OldLeaves = append(seen.OldLeaves, OldLeaf{leaf.Label(), sql[0]})
		}
	}
	return seen, nil
}

func shownValue(value any) string {
	if at, ok := value.(time.Time); ok {
		return at.UTC().Format(time.RFC3339)
	}
	return fmt.Sprint(value)
}

// allDue reports whether a table has rows and all of them are due. The first condition is
// an index lookup, which is false for most tables.
func (r *rule) allDue(ctx context.Context, read dml.Reader, from string, cutoff any) (bool, error) {
	args := &dml.Args{}
	due := r.due("child", cutoff, args)
	sql := fmt.Sprintf("SELECT NOT EXISTS (SELECT FROM %[1]s WHERE %[2]s OPERATOR(pg_catalog.>=) %[3]s) "+
		"AND NOT EXISTS (SELECT FROM %[1]s WHERE (%[4]s) IS NOT TRUE) AND EXISTS (SELECT FROM %[1]s)",
		from, r.column("child"), r.bound(r.parameter(cutoff, args)), due)
	found, err := dml.Select(ctx, read, pgx.RowTo[bool], sql, args.Values...)
	return err == nil && found[0], err
}

// dropSQL is the query for the statements that drop the partition $1. It omits
// CONCURRENTLY if the table has a default partition, because DETACH CONCURRENTLY would
// fail.
const dropSQL = `
SELECT pg_catalog.format('ALTER TABLE %s DETACH PARTITION %s%s; DROP TABLE %2$s', above.inhparent::pg_catalog.regclass, $1::pg_catalog.oid::pg_catalog.regclass,
	CASE WHEN parted.partdefid OPERATOR(pg_catalog.=) 0 THEN ' CONCURRENTLY' ELSE '' END)
FROM pg_catalog.pg_inherits AS above
JOIN pg_catalog.pg_partitioned_table AS parted ON parted.partrelid OPERATOR(pg_catalog.=) above.inhparent
WHERE above.inhrelid OPERATOR(pg_catalog.=) $1::pg_catalog.oid`

// mostShown limits the old partitions of a rule that are reported.
const mostShown = 5

// Findings returns warnings about the results of Foresee.
func Findings(all []Foreseen) (found problem.List) {
	for _, seen := range all {
		report := func(fix, format string, args ...any) {
			found.Add(problem.Problem{
				Severity: problem.Warning, Key: seen.key, Message: fmt.Sprintf(format, args...),
				Fix: fix,
			})
		}
		if seen.Whole {
			report("check the column and keep; dry_run: true only counts", "%s: every row of the table is due",
				seen.Rule)
		}
		for i, leaf := range seen.OldLeaves {
			if i == mostShown {
				report("run sexton plan --json to list them", "%s: every row of %d more partitions is due", seen.Rule,
					len(seen.OldLeaves)-i)
				break
			}
			report(leaf.SQL+"; this fires no triggers",
				"%s: every row of partition %s is due, and dropping it is cheaper", seen.Rule, leaf.Partition)
		}
		for _, create := range slices.Compact(seen.create) {
			report(create, "%s: no index returns due rows in order, so each query reads the whole table", seen.Rule)
		}
		if seen.Unknown != "" {
			report("", "%s: %s", seen.Rule, seen.Unknown)
		}
	}
	return found
}

// MissingPrivileges returns the privileges that the role of db lacks for the rules.
func MissingPrivileges(ctx context.Context, db pgcatalog.Beginner, plan *Plan) (problem.List, error) {
	var needs []dml.Need
	for i, r := range plan.rules {
		if r.DryRun {
			needs = append(needs, r.edge.Needs(i)...)
			continue
		}
		needs = append(needs, r.edge.Needs(i, dml.Remove)...)
		for _, t := range append([]*dml.Table{r.table}, r.below...) {
			for _, f := range t.Refs {
				below := dml.Edge{Child: f.Table.Table, Leaves: f.Leaves, Columns: f.Columns}
				needs = append(needs, below.Needs(i, f.Action)...)
			}
		}
	}
	return dml.Lacking(ctx, db, needs, func(by int) problem.Problem {
		return problem.Problem{
			Severity: problem.Error,
			Key:      plan.rules[by].key,
		}
	})
}
