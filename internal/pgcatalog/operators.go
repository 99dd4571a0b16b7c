package pgcatalog

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// Operators holds a database's operators of btree families and its implicit casts. They
// define how Postgres compares a foreign key with the key that it refers to. A statement
// with an unqualified operator would use the operator that the search path finds. That
// operator may be for another type (text for citext outside the path) or belong to
// another role.
type Operators struct {
	members map[member]operator
	// families holds the operator families of each equality operator, by the operator's
	// OID.
	families map[uint32][]string
	// classes holds the default operator class of each type.
	classes map[string]class
	casts   map[cast]castWay
}

type member struct {
	family, left, right string
	strategy            int16
}

// These constants are the strategy numbers of btree operator families.
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
	// binary reports that the cast does not change the value, so that an index can still
	// be used.
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

// class returns the default operator class of a column's type, as Postgres chooses it for
// an index. A type without an operator class has no order.
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

// Releases are tested with these major versions of Postgres, from the oldest to the
// newest.
const oldest, newest = 14, 18

// Untested returns a problem with a server's version: an error if it is too old, or a
// warning if it is newer than the tested versions. The problem is empty for other
// versions and for a text that is not a version.
func Untested(version string) problem.Problem {
	var major int
	_, _ = fmt.Sscan(version, &major) // major remains 0 if the text has no number.
	switch {
	case major > 0 && major < oldest:
		return problem.Problem{
			Severity: problem.Error, Message: "the server is PostgreSQL " + version + ", which is too old",
			Fix: fmt.Sprintf("upgrade it to PostgreSQL %d or newer", oldest),
		}
	case major > newest:
		return problem.Problem{
			Severity: problem.Warning,
			Message: fmt.Sprintf("the server is PostgreSQL %s, but this release was tested with %d to %d", version,
				oldest, newest),
			Fix: "use a newer release, and try it with a copy of the database first",
		}
	}
	return problem.Problem{}
}
