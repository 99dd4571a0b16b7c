package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const looseForeignKeysKind = "loose_foreign_keys_cleanup"

// looseForeignKeys deletes parents at random: mostly one at a time, now and then many in one statement.
type looseForeignKeys struct {
	stage

	// share of every table goes, in percent.
	share  int64
	tables []parentTable
}

func newLooseForeignKeys(on stage) *looseForeignKeys {
	l := &looseForeignKeys{stage: on, tables: parentTables()}
	l.share = l.Script().pace(on.endless).Share
	return l
}

// Script tells of tombstones.
func (*looseForeignKeys) Script() Script {
	return Script{
		Kind: looseForeignKeysKind, Title: "loose foreign keys",
		Acted: "parents deleted", Unit: "tombstones", Finished: "paid off", Until: "from commit to clean",
		// Parents are left over, to show that only children of deleted ones go.
		Pace:        Pace{Share: 60, Length: 25 * time.Second, Slowest: 40},
		EndlessPace: Pace{Share: 100, Length: 10 * time.Minute, Slowest: 4},
		Waiting: `SELECT fully_qualified_table_name, primary_key_value, created_at
			FROM "public".loose_foreign_keys_deleted_records`,
		Processed: "processed", Numbers: []string{"rescheduled"},
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
	name   string
	weight int
	// most is how many go in one statement.
	most int
	// fraction divides the share of rows that go; 0 means 1.
	fraction int64
	// left is how many are still to go.
	left int64
	// first and last are the keys between which its rows are.
	first, last int64
}

// Plan counts the tables.
func (l *looseForeignKeys) Plan(ctx context.Context) (planned int64, err error) {
	for i, table := range l.tables {
		var rows int64
		sql := "SELECT count(*), coalesce(min(id), 0), coalesce(max(id), 0) FROM " + pgx.Identifier{table.name}.Sanitize()
		if err := l.pool.QueryRow(ctx, sql).Scan(&rows, &l.tables[i].first, &l.tables[i].last); err != nil {
			return 0, fmt.Errorf("count %s: %w", table.name, err)
		}
		l.tables[i].left = (rows*l.share + 99) / 100 / max(1, table.fraction)
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
	from := table.first + rand.Int64N(table.last-table.first+1)
	ids, err := l.remove(ctx, table.name, from, limit)
	if err == nil && len(ids) == 0 {
		ids, err = l.remove(ctx, table.name, table.first, limit)
	}
	if err != nil {
		return nil, false, fmt.Errorf("delete from %s: %w", table.name, err)
	}
	l.ledger.add(table.name, ids)
	for _, id := range ids {
		acted = append(acted, Item{l.names.Tracked + "." + table.name, id})
	}
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

// remove deletes rows in the order of their keys.
func (l *looseForeignKeys) remove(ctx context.Context, table string, from int64, limit int) ([]int64, error) {
	quoted := pgx.Identifier{table}.Sanitize()
	sql := "DELETE FROM " + quoted + " WHERE id IN (SELECT id FROM " + quoted + " WHERE id >= $1 ORDER BY id LIMIT $2) RETURNING id"
	rows, _ := l.pool.Query(ctx, sql, from, limit)
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
