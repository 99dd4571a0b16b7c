package pgcatalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// Operators are a database's operators of btree families and its implicit casts: how
// Postgres compares a foreign key with the key that it refers to. A statement that names
// no operator gets the one that the search path leads to, which may be another type's
// (text for citext outside the path) or another role's.
type Operators struct {
	members map[member]operator
	// families are the ones that have an operator for equality, by its OID.
	families map[uint32][]string
	// classes are the default classes by the type that they take.
	classes map[string]class
	casts   map[cast]castWay
}

type member struct {
	family, left, right string
	strategy            int16
}

// The strategies of btree families.
const (
	less     int16 = 1
	atMost   int16 = 2
	equality int16 = 3
	atLeast  int16 = 4
	greater  int16 = 5
)

type operator struct {
	oid       uint32
	text      string
	schema    string
	immutable bool
}

type class struct{ family, input string }

type cast struct{ from, to string }

type castWay struct {
	// binary casts leave the value as it is, so that an index serves all the same.
	binary, immutable, preferred bool
}

// ReadOperators reads the operators of a database.
func ReadOperators(ctx context.Context, db dbsqlc.DBTX) (*Operators, error) {
	o := &Operators{
		members: map[member]operator{}, families: map[uint32][]string{}, classes: map[string]class{},
		casts: map[cast]castWay{},
	}
	rows, err := db.Query(ctx, text("operators"))
	if err == nil {
		var m member
		var found operator
		columns := []any{
			&m.family, &m.left, &m.right, &m.strategy, &found.oid, &found.text, &found.schema,
			&found.immutable,
		}
		_, err = pgx.ForEachRow(rows, columns, func() error {
			o.members[m] = found
			if m.strategy == equality {
				o.families[found.oid] = append(o.families[found.oid], m.family)
			}
			return nil
		})
	}
	if err == nil {
		rows, err = db.Query(ctx, text("classes"))
	}
	if err == nil {
		var c class
		_, err = pgx.ForEachRow(rows, []any{&c.input, &c.family}, func() error { o.classes[c.input] = c; return nil })
	}
	if err == nil {
		rows, err = db.Query(ctx, text("casts"))
	}
	if err == nil {
		var c cast
		var way castWay
		_, err = pgx.ForEachRow(rows, []any{&c.from, &c.to, &way.binary, &way.immutable, &way.preferred},
			func() error { o.casts[c] = way; return nil })
	}
	return o, problem.Doing(err, "read operators")
}

// class is the default class of a column's type, as Postgres chooses it for an index;
// without one the type has no order.
func (o *Operators) class(c Column) (class, bool) {
	for _, input := range []string{c.Base, c.Polymorphic} {
		if found, ok := o.classes[input]; ok {
			return found, true
		}
	}
	var best class
	for change, way := range o.casts {
		to, ordered := o.classes[change.to]
		if change.from == c.Base && ordered && way.binary && (best.family == "" || way.preferred) {
			best = to
		}
	}
	return best, best.family != ""
}

// The oldest and newest major versions of Postgres that every release is tested with.
const oldest, newest = 14, 18

// Untested reports what there is to say of a server's version, as the server writes it:
// an error for one that is too old, a warning for one that is newer than those of the
// tests. For all others, and for a text that is no version, the problem is empty.
func Untested(version string) problem.Problem {
	var major int
	_, _ = fmt.Sscan(version, &major) // What is no number says nothing.
	switch {
	case major > 0 && major < oldest:
		return problem.Problem{
			Severity: problem.Error, Message: "the server is PostgreSQL " + version + ", which is too old",
			Fix: fmt.Sprintf("upgrade it to PostgreSQL %d or newer", oldest),
		}
	case major > newest:
		return problem.Problem{
			Severity: problem.Warning,
			Message: fmt.Sprintf("the server is PostgreSQL %s, and this release was tested with %d to %d", version,
				oldest, newest),
			Fix: "look for a newer release, and try it with a copy of the database first",
		}
	}
	return problem.Problem{}
}
