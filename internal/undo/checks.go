package undo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sexton/internal/drain"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
)

// check looks for rows whose parent is missing, among rows that are back, as they stand, or among kept ones.
type check struct {
	// what says what that means.
	what string
	// source is the table of the rows, target the one of their parents, whose OID is other. Its columns others have the values of columns.
	source, target  string
	other           uint32
	columns, others []string
	// on compares r and other, given and distinct are the reference's values and what tells them apart; more restricts the rows.
	on, more        string
	given, distinct []string
	// lock has the parent locked, whole says that some columns must not be NULL where others are not.
	lock, whole bool
	// deleted tells of the reference by which the rows were deleted.
	deleted bool
	args    *drain.Args
}

// standing are the rows $2 of the relations $1, whose places are $3, as they stand.
func (c *check) standing() string {
	return fmt.Sprintf(`ROWS FROM (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.int4[]))
	AS sexton (relation, tid, n)
JOIN %s AS r ON r.tableoid OPERATOR(pg_catalog.=) sexton.relation AND r.ctid OPERATOR(pg_catalog.=) sexton.tid::pg_catalog.tid`, c.source)
}

// missing is the condition that a row of r has no parent.
func (c *check) missing(lock bool) string {
	on := c.on
	if lock && c.lock {
		on += " FOR KEY SHARE OF other"
	}
	return fmt.Sprintf("NOT EXISTS (SELECT FROM %s AS other WHERE %s)", c.target, on)
}

// refers is the condition that a row of r has a parent, or should have.
func (c *check) refers() string {
	return fmt.Sprintf("pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.=) 0%s", strings.Join(c.given, ", "), c.more)
}

// partly is the condition that a row of r has a part of the reference.
func (c *check) partly() string {
	if !c.whole || len(c.given) == 1 {
		return "false"
	}
	given := strings.Join(c.given, ", ")
	return fmt.Sprintf("pg_catalog.num_nulls(%s) OPERATOR(pg_catalog.>) 0 AND pg_catalog.num_nonnulls(%s) OPERATOR(pg_catalog.>) 0", given, given)
}

// any asks whether there are such rows, once for equal references.
func (c *check) any() string {
	once, columns := strings.Join(c.distinct, ", "), strings.Join(drain.Qualified("r", c.columns), ", ")
	return fmt.Sprintf(`SELECT EXISTS (SELECT FROM %s WHERE %s) OR EXISTS (SELECT FROM (SELECT DISTINCT ON (%s) %s FROM %s WHERE %s OFFSET 0) AS r WHERE %s)`,
		c.standing(), c.partly(), once, columns, c.standing(), c.refers(), c.missing(true))
}

// all are the places of those rows.
func (c *check) all() string {
	return fmt.Sprintf("SELECT sexton.n FROM %s WHERE %s OR %s AND %s", c.standing(), c.partly(), c.refers(), c.missing(false))
}

// links is, where a table refers to itself, the place of each row with the text forms of its key and of its reference.
func (c *check) links() string {
	return fmt.Sprintf("SELECT sexton.n, ARRAY[%s]::pg_catalog.text, CASE WHEN %s THEN ARRAY[%s]::pg_catalog.text END FROM %s",
		strings.Join(forms(drain.Qualified("r", c.others)), ", "), c.refers(), strings.Join(forms(c.given), ", "), c.standing())
}

// forms are the text forms of values, compared byte by byte.
func forms(values []string) []string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = "pg_catalog.format('%s', " + value + `) COLLATE pg_catalog."C"`
	}
	return texts
}

// missing makes the checks for each parent that rows of the table refer to. In silence native foreign keys are not checked, so they are looked up here;
// definitions of loose foreign keys are always. Of changed rows only the definition counts that changed them: its conditions held then.
func (e *Engine) missing(ctx context.Context, u *unit, s *set, f *shape, native bool) (checks []check, _ error) {
	by, _, err := e.reference(ctx, u, s)
	if err != nil {
		return nil, err
	}
	for _, key := range f.keys {
		if !native {
			break
		}
		c := check{
			what: "foreign key " + key.Name + " finds no row of " + key.Target, source: key.Source, target: key.Target, other: key.Other,
			columns: key.Columns, others: key.Others, lock: key.Lockable, whole: key.Whole,
		}
		if key.Only {
			c.target = "ONLY " + key.Target
		}
		checks = append(checks, c.comparing(f, func(column int, given string) string {
			return fmt.Sprintf("other.%s %s %s", pgcatalog.Quote(key.Others[column]), key.Operators[column], given)
		}))
	}
	for _, parent := range e.Parents[s.on.Name] {
		for _, reference := range parent.References {
			if !reference.Usable() || reference.Remote || reference.Child.OID != f.OID || len(s.Changed) > 0 && reference != by {
				continue
			}
			c := loose(parent, reference, f)
			if c.deleted = reference == by; len(s.Changed) == 0 {
				c.more = reference.Restrictions("r", c.args)
			}
			c.columns = slices.Clone(c.columns)
			for _, condition := range slices.Concat(reference.Conditions, reference.Except) {
				c.need(condition.Column)
			}
			if reference.Action == drain.Assign {
				c.need(reference.Target.Column)
			}
			checks = append(checks, c)
		}
	}
	return checks, nil
}

// loose is the check of a definition.
func loose(parent *loosefk.Parent, reference *loosefk.Reference, f *shape) check {
	c := check{
		what: "the row of " + parent.Recorded + " that it refers to has gone", source: f.Name, target: parent.SQL(), other: parent.OID,
		columns: reference.Columns, others: parent.KeyColumns,
	}
	return c.comparing(f, func(column int, given string) string {
		return reference.Compare[column].Equal(given, "other."+pgcatalog.Quote(parent.KeyColumns[column]))
	})
}

// lookedUp are the checks for rows of sets that are about to come back together. Their own parents need none if all of them came back under the same
// leases: what was deleted of them since has a tombstone that no worker has seen.
func (e *Engine) lookedUp(ctx context.Context, u *unit, f *shape, sets ...*set) ([]check, error) {
	checks, err := e.missing(ctx, u, sets[0], f, e.silent[sets[0].on.Name])
	for _, s := range sets {
		for _, id := range s.Origins {
			if slices.ContainsFunc(s.above(u, id), func(above *set) bool {
				return above.known || len(above.restored) < len(above.owned) && !slices.Contains(sets, above)
			}) || s.Parent != sets[0].Parent || !slices.Equal(s.Via, sets[0].Via) {
				return checks, err
			}
		}
	}
	return slices.DeleteFunc(checks, func(c check) bool { return c.deleted }), err
}

// comparing adds a term for each column of the reference.
func (c check) comparing(f *shape, term func(column int, given string) string) check {
	c.args = &drain.Args{Values: []any{nil, nil, nil}}
	terms := make([]string, len(c.columns))
	for i, column := range c.columns {
		given := "r." + pgcatalog.Quote(column)
		c.given, terms[i] = append(c.given, given), term(i, given)
		if !slices.Contains([]string{"pg_catalog.int2", "pg_catalog.int4", "pg_catalog.int8", "pg_catalog.uuid"}, f.kind(column)) {
			given = forms([]string{given})[0]
		}
		c.distinct = append(c.distinct, given)
	}
	c.on = strings.Join(terms, " AND ")
	return c
}

// need notes a further column that conditions ask for.
func (c *check) need(column string) {
	if !slices.Contains(c.columns, column) {
		c.columns = append(c.columns, column)
	}
}
