package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
)

const looseForeignKeysKind = "loose_foreign_keys_cleanup"

// looseForeignKeys deletes parents at random: mostly one at a time, now and then many in one statement.
type looseForeignKeys struct {
	stage

	tables []parentTable
}

func newLooseForeignKeys(on stage) *looseForeignKeys {
	return &looseForeignKeys{stage: on, tables: parentTables()}
}

// Script tells of tombstones.
func (*looseForeignKeys) Script() Script {
	return Script{
		Kind: looseForeignKeysKind, Title: "loose foreign keys",
		Acted: "parents deleted", Unit: "tombstones", Finished: "paid off", Until: "from commit to clean",
		// Parents are left over, to show that only children of deleted ones go.
		Pace:        Pace{Share: 60, Length: 25 * time.Second, Slowest: 40},
		EndlessPace: Pace{Share: 100, Length: 10 * time.Minute, Slowest: 4},
		Waiting:     query("waiting_tombstones"),
		Processed:   "processed", Numbers: []string{"rescheduled"},
		Rows: []RowCount{{"delete_count_by_table", "deleted"}, {"update_count_by_table", "nullified or updated"}},
	}
}

// parentTables are the tables from which the application deletes, with how often.
func parentTables() []parentTable {
	return []parentTable{
		{name: "ci_pipelines", weight: 8, most: 1000},
		{name: "issues", weight: 4, most: 1000},
		{name: "merge_requests", weight: 3, most: 100},
		{name: "web_hooks", weight: 2, most: 100},
		{name: "packages_packages", weight: 2, most: 100},
		// Each takes many others along, by its real foreign keys and by the loose ones.
		{name: "projects", weight: 1, most: 1, fraction: 6},
	}
}

type parentTable struct {
	span

	name   string
	weight int
	// most is how many go in one statement.
	most int
	// fraction divides the share of rows that go; 0 means 1.
	fraction int64
	// left is how many are still to go, newest the last row that was there before them.
	left, newest int64
}

// Plan counts the tables.
func (l *looseForeignKeys) Plan(ctx context.Context) (planned int64, err error) {
	for i, table := range l.tables {
		var rows int64
		sql := "SELECT count(*), coalesce(min(id), 0), coalesce(max(id), 0) FROM " + pgx.Identifier{table.name}.Sanitize()
		if err := l.pool.QueryRow(ctx, sql).Scan(&rows, &l.tables[i].first, &l.tables[i].last); err != nil {
			return 0, fmt.Errorf("count %s: %w", table.name, err)
		}
		l.tables[i].left = l.of(l.Script(), rows) / max(1, table.fraction)
		l.tables[i].newest = l.tables[i].last
		planned += l.tables[i].left
	}
	l.tables = slices.DeleteFunc(l.tables, func(t parentTable) bool { return t.left == 0 })
	return planned, nil
}

// Act removes parents that stand together in one table, as one statement. A table of which enough is gone, or all, is
// left alone from then on.
func (l *looseForeignKeys) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	if len(l.tables) == 0 {
		return nil, false, nil
	}
	at := l.pick()
	table := &l.tables[at]
	limit = min(limit, table.most, int(table.left))
	ids, err := table.anywhere(func(from int64) ([]int64, error) { return l.remove(ctx, table, from, limit) })
	if err != nil {
		return nil, false, fmt.Errorf("delete from %s: %w", table.name, err)
	}
	l.ledger.add(table.name, ids)
	acted = items(l.names.Tracked+"."+table.name, ids)
	table.left -= int64(len(ids))
	if len(ids) == 0 || table.left <= 0 {
		l.tables = slices.Delete(l.tables, at, at+1)
	}
	return acted, len(l.tables) > 0, nil
}

// pick returns a table by weight.
func (l *looseForeignKeys) pick() int {
	total := 0
	for _, table := range l.tables {
		total += table.weight
	}
	n := rand.IntN(total)
	for i, table := range l.tables {
		if n -= table.weight; n < 0 {
			return i
		}
	}
	return 0
}

// remove deletes rows in the order of their keys. Rows that have come since belong to other scenes.
func (l *looseForeignKeys) remove(ctx context.Context, table *parentTable, from int64, limit int) ([]int64, error) {
	quoted := pgx.Identifier{table.name}.Sanitize()
	sql := "DELETE FROM " + quoted + " WHERE id IN (SELECT id FROM " + quoted + " WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT $3) RETURNING id"
	rows, _ := l.pool.Query(ctx, sql, from, table.newest, limit)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// Check counts the orphans of all definitions.
func (l *looseForeignKeys) Check(ctx context.Context) ([]Finding, error) {
	left, err := orphans(ctx, l.stage)
	if err != nil {
		return nil, err
	}
	return []Finding{{Name: orphansLeft, Text: "orphans are left", Count: left, Fault: true}}, nil
}

// orphansLeft is the name of what Check finds.
const orphansLeft = "orphans_left"

// orphans counts the children that a definition says should be gone or changed and that are not, by plain
// anti-joins over the whole tables. It shares nothing with the engine but the definitions.
func orphans(ctx context.Context, on stage) (int64, error) {
	var total int64
	for _, d := range on.definitions {
		sql, args := orphansOf(d, on.names)
		var count int64
		if err := on.pool.QueryRow(ctx, sql, args...).Scan(&count); err != nil {
			return 0, fmt.Errorf("count orphans of %s in %s: %w", d.Parent, d.Child, err)
		}
		total += count
	}
	return total, nil
}

func orphansOf(d definitions.Definition, names pgcatalog.Names) (sql string, args []any) {
	table := func(n definitions.Name) string {
		if n.Schema == "" {
			n.Schema = names.Tracked
		}
		return pgx.Identifier{n.Schema, n.Table}.Sanitize()
	}
	column := func(name string) string { return "child." + pgx.Identifier{name}.Sanitize() }
	parentColumns := d.ParentColumns
	if len(parentColumns) == 0 {
		parentColumns = []string{"id"}
	}
	var same, given []string
	for i, name := range parentColumns {
		same = append(same, fmt.Sprintf("parent.%s = %s", pgx.Identifier{name}.Sanitize(), column(d.Columns[i])))
		given = append(given, column(d.Columns[i])+" IS NOT NULL")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SELECT count(*) FROM %s AS child LEFT JOIN %s AS parent ON %s WHERE %s AND parent.%s IS NULL",
		table(d.Child), table(d.Parent), strings.Join(same, " AND "), strings.Join(given, " AND "), pgx.Identifier{parentColumns[0]}.Sanitize())
	for _, c := range d.Conditions {
		args = append(args, c.Value)
		fmt.Fprintf(&b, " AND %s::text = $%d", column(c.Column), len(args))
	}
	if d.OnDelete == definitions.UpdateColumn {
		args = append(args, d.TargetValue)
		fmt.Fprintf(&b, " AND %s::text IS DISTINCT FROM $%d", column(d.TargetColumn), len(args))
	}
	return b.String(), args
}
