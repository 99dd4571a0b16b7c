package integration

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"
)

// fill adds rows to the tables. References may point anywhere, so the native checks are off meanwhile.
func (c *scenario) fill() {
	numbers := make([][]int, len(c.schema.tables))
	more := make([]int, len(c.schema.tables))
	for i, t := range c.schema.tables {
		more[i] = rapid.IntRange(0, 9).Draw(c.rt, "rows")
		numbers[i] = c.numbers(i)
		for n := range more[i] {
			numbers[i] = append(numbers[i], t.made+n)
		}
	}
	var script strings.Builder
	for i, t := range c.schema.tables {
		rows := make([]fresh, more[i])
		for n := range rows {
			rows[n] = c.drawRow(t, numbers)
		}
		if len(rows) > 0 {
			script.WriteString(t.insert(rows...) + ";\n")
		}
	}
	c.exec(c.native, "native", "SET session_replication_role = replica;\n"+script.String()+"RESET session_replication_role")
	// Statements of one script share a transaction with those before the first BEGIN.
	c.ours("BEGIN;\n" + script.String() + "COMMIT")
	c.look()
}

// drawRow draws a row whose parents are among the given rows of each table.
func (c *scenario) drawRow(t *table, numbers [][]int) fresh {
	drawn := fresh{kind: rapid.SampledFrom(rowKinds()).Draw(c.rt, "kind"), targets: make([]int, len(t.references))}
	for i, r := range t.references {
		drawn.targets[i] = c.drawTarget(r, numbers[slices.Index(c.schema.tables, r.parent)])
	}
	return drawn
}

// drawTarget draws one of the numbers, or -1 for NULL.
func (c *scenario) drawTarget(r *reference, numbers []int) int {
	at := rapid.IntRange(-1, len(numbers)-1).Draw(c.rt, "target")
	if at < 0 {
		return -1
	}
	c.referred[place{slices.Index(c.schema.tables, r.parent), numbers[at]}] = true
	return numbers[at]
}

// living are the numbers of all tables' living rows.
func (c *scenario) living() [][]int {
	numbers := make([][]int, len(c.schema.tables))
	for _, r := range c.alive {
		numbers[r.table] = append(numbers[r.table], r.number)
	}
	return numbers
}

// workload runs some transactions, which may be rolled back as a whole or in part.
func (c *scenario) workload() {
	for range rapid.IntRange(1, 3).Draw(c.rt, "transactions") {
		c.control("BEGIN")
		before := c.alive
		for range rapid.IntRange(1, 4).Draw(c.rt, "statements") {
			if rapid.IntRange(0, 5).Draw(c.rt, "savepoint") == 5 {
				c.savepoint()
			}
			c.statement()
		}
		end := rapid.SampledFrom([]string{"COMMIT", "ROLLBACK"}).Draw(c.rt, "end")
		c.mix.count(end)
		c.control(end)
		if end == "ROLLBACK" {
			c.alive = before
		}
	}
}

func (c *scenario) savepoint() {
	c.control("SAVEPOINT here")
	before := c.alive
	c.statement()
	end := rapid.SampledFrom([]string{"ROLLBACK TO here", "RELEASE here"}).Draw(c.rt, "end of savepoint")
	c.mix.count(end)
	c.control(end)
	if end != "RELEASE here" {
		c.alive = before
	}
}

// statement runs one statement that both databases take.
func (c *scenario) statement() {
	at := rapid.IntRange(0, len(c.schema.tables)-1).Draw(c.rt, "table")
	t, numbers := c.schema.tables[at], c.numbers(at)
	kind := rapid.SampledFrom([]string{"delete", "delete some", "move", "delete in two tables", "insert", "delete in partition", "update"}).Draw(c.rt, "statement")
	var sql string
	switch kind {
	case "delete":
		if len(numbers) > 0 {
			sql = t.delete(rapid.SampledFrom(numbers).Draw(c.rt, "row"))
		}
	case "delete some":
		// By a condition, which also meets rows that natively are gone already.
		sql = fmt.Sprintf("DELETE FROM %s WHERE note %% 4 = %d", t.sql(), rapid.IntRange(0, 3).Draw(c.rt, "remainder"))
	case "delete in two tables":
		other := (at + rapid.IntRange(1, len(c.schema.tables)-1).Draw(c.rt, "other table")) % len(c.schema.tables)
		remainder := rapid.IntRange(0, 4).Draw(c.rt, "remainder")
		sql = fmt.Sprintf("WITH gone AS (DELETE FROM %s WHERE note %% 5 = %[2]d RETURNING note) DELETE FROM %[3]s WHERE note %% 5 = %[2]d",
			t.sql(), remainder, c.schema.tables[other].sql())
	case "delete in partition":
		if len(t.partitions) > 0 {
			at := rapid.IntRange(0, len(t.partitions)-1).Draw(c.rt, "partition")
			sql = fmt.Sprintf("DELETE FROM %s WHERE note %% 3 = 0", t.partition(at))
		}
	case "insert":
		number := t.made
		sql = t.insert(c.drawRow(t, c.living()))
		c.alive = append(slices.Clone(c.alive), row{place: place{at, number}})
	case "move":
		numbers = c.movable(at)
		if len(numbers) > 0 && len(t.references) > 0 {
			sql = t.point(rapid.SampledFrom(numbers).Draw(c.rt, "row"), c.drawRow(t, c.living()).targets)
		}
	case "update":
		if len(numbers) > 0 {
			sql = t.renote(rapid.SampledFrom(numbers).Draw(c.rt, "row"), rapid.IntRange(0, 9).Draw(c.rt, "note"))
		}
	}
	if sql != "" {
		c.mix.count(kind)
		c.both(sql)
	}
}

// movable are the living rows of a table that may be given other parents.
func (c *scenario) movable(table int) []int {
	var numbers []int
	for _, r := range c.alive {
		if r.table == table && !r.marked {
			numbers = append(numbers, r.number)
		}
	}
	return numbers
}
