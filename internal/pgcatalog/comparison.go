package pgcatalog

import (
	"fmt"
	"slices"
	"strings"

	"sexton/internal/render"
)

// Key is one column of a unique index that other tables refer to.
type Key struct {
	Column

	// family, input and collation are the operator family, input type and collation of
	// the index. They are empty if the column has no such index, so that the defaults
	// apply.
	family, input string
	collation     Collation
}

// Collation is the collation of a type. The name is empty if the type has no collation.
type Collation struct {
	// Name is the qualified and quoted name.
	Name string
	// Loose reports that the collation is nondeterministic, so that different texts may
	// be equal.
	Loose bool
}

// Key returns the key with the given columns. Operator family, input type and collation
// are taken from a unique index on exactly these columns, in any order, or else from the
// primary key.
func (r *Relation) Key(columns []string) []Key {
	keys := render.Each(columns, func(name string) Key {
		return Key{
			Column:    r.Columns[name],
			collation: r.Columns[name].Collation,
		}
	})
	for _, i := range r.Indexes[r.OID] {
		if !i.Unique || !i.Complete() || !i.Primary && (len(i.Columns) != len(columns) || i.Order(columns) == nil) {
			continue
		}
		for at, name := range columns {
			if position := slices.Index(i.Columns, name); position >= 0 {
				keys[at].family, keys[at].input, keys[at].collation = i.Families[position], i.Inputs[position],
					i.Collations[position]
			}
		}
		if len(i.Columns) == len(columns) && i.Order(columns) != nil {
			break
		}
	}
	return keys
}

// Comparison holds the parts of SQL expressions that compare a column with values of one
// type.
type Comparison struct {
	// Operator is the qualified operator for equality. After is the qualified operator
	// for greater than.
	Operator, After string
	// atLeast and atMost are operators that compare the column with a key. less and more
	// compare two keys. All four are empty if the family lacks one of them.
	atLeast, atMost, less, more string
	// cast is the type that the column is cast to. value is the type that keys are cast
	// to.
	cast, value string
	// back reports that numeric keys are converted to bigint, so that they can be
	// compared with an integer column.
	back bool
	// collate is the COLLATE clause. collation is the collation of the comparison.
	collate, collation string
	oid                uint32
	// computed reports that the cast changes the value, so that no index on the column
	// can be used.
	computed bool
}

// Own returns the comparison of a column with values of its own type, as in an index with
// the default operator class.
func (o *Operators) Own(c Column) (Comparison, error) {
	found, ok := o.class(c)
	if !ok {
		return Comparison{}, fmt.Errorf("type %s has no default btree operator class, so its values cannot be compared", Short(c.Base))
	}
	return o.same(c, found), nil
}

// same returns the comparison of a column with values of its own type by an operator
// class. If the operator is outside pg_catalog, another role may have created an operator
// with the same name that fits the types better. So values that do not have exactly the
// operator's types are cast.
func (o *Operators) same(c Column, by class) Comparison {
	equal, after := o.members[member{by.family, by.input, by.input, equality}],
		o.members[member{by.family, by.input, by.input, greater}]
	comparison := Comparison{Operator: equal.text, After: after.text, oid: equal.oid, collation: c.Collation.Name}
	comparison.order(o, by, by.input)
	if equal.schema != "pg_catalog" && by.input != c.Polymorphic {
		comparison.value = by.input
		if c.Domain || c.Base != by.input {
			comparison.cast = by.input
		}
	}
	return comparison
}

// Parent returns the comparison of a key's column with values of its own type, by the
// operator class and collation of the index.
func (o *Operators) Parent(key Key) (Comparison, error) {
	by := class{key.family, key.input}
	if by.family == "" {
		var ok bool
		if by, ok = o.class(key.Column); !ok {
			return o.Own(key.Column)
		}
	}
	comparison := o.same(key.Column, by)
	if comparison.oid == 0 {
		return comparison, fmt.Errorf("type %s of the key has no equality operator of its index's family", Short(key.Base))
	}
	// The parent's collation is explicit, because a comparison with a column of another
	// collation would be ambiguous.
	comparison.setCollation(key.collation)
	return comparison, nil
}

// defaultCollation is the database's default collation. It needs no COLLATE clause,
// because the collation of a column has precedence.
const defaultCollation = "pg_catalog.\"default\""

// setCollation sets the collation and, unless it is the default, the COLLATE clause.
func (c *Comparison) setCollation(collation Collation) {
	c.collation = collation.Name
	if collation.Name != "" {
		c.collate = " COLLATE " + collation.Name
	}
}

// Compare returns the comparison of a column with values of a key, as in a native foreign
// key. It uses the operator for the two types in the family of the parent's unique index.
// If there is none, it uses the operator of the parent's type and casts the column to
// that type. It returns an error if there is no such operator, or if its result depends
// on the session.
func (o *Operators) Compare(key Key, c Column) (Comparison, error) {
	by := class{key.family, key.input}
	if by.family == "" || o.members[member{by.family, by.input, by.input, equality}].oid == 0 {
		var ok bool
		if by, ok = o.class(key.Column); !ok { // The child's database may lack the type.
			return Comparison{}, o.mismatch(key, c)
		}
	}
	comparison, err := o.between(key, by, c)
	switch {
	case key.collation.Name == c.Collation.Name:
	case key.collation.Loose || c.Collation.Loose:
		comparison.setCollation(key.collation)
	default: // With both collations, a comparison would be ambiguous. Equality is the same in both.
		comparison.setCollation(c.Collation)
	}
	return comparison, err
}

func (o *Operators) between(key Key, by class, c Column) (Comparison, error) {
	if c.Base == key.Base || c.Base == by.input {
		return o.same(c, by), nil
	}
	if found, ok := o.members[member{by.family, c.Base, by.input, equality}]; ok {
		comparison := Comparison{Operator: found.text, oid: found.oid, collation: c.Collation.Name}
		comparison.order(o, by, c.Base)
		if found.schema != "pg_catalog" {
			comparison.cast, comparison.value = c.Base, by.input
		}
		if !found.immutable {
			return comparison,
				fmt.Errorf("comparing %s with %s depends on the time zone of the session",
					Short(c.Base), Short(key.Base))
		}
		return comparison, nil
	}
	way, ok := o.casts[cast{c.Base, by.input}]
	switch {
	case !ok || !way.immutable:
		return Comparison{}, o.mismatch(key, c)
	case by.input == `pg_catalog."numeric"` && Integer(c.Base):
		back := o.members[member{"pg_catalog.integer_ops", c.Base, "pg_catalog.int8", equality}]
		return Comparison{Operator: back.text, back: true, oid: back.oid}, nil
	}
	comparison := o.same(c, by)
	comparison.cast, comparison.computed = by.input, !way.binary
	if comparison.collation == "" {
		comparison.collation = defaultCollation
	}
	return comparison, nil
}

// order sets the ordering operators for a column of type left and keys of the operator
// class's type.
func (c *Comparison) order(o *Operators, by class, left string) {
	of := func(left string, strategy int16) string {
		return o.members[member{by.family, left, by.input, strategy}].text
	}
	atLeast, atMost, less, more := of(left, atLeast), of(left, atMost), of(by.input, less), of(by.input, greater)
	if atLeast != "" && atMost != "" && less != "" && more != "" {
		c.atLeast, c.atMost, c.less, c.more = atLeast, atMost, less, more
	}
}

func (o *Operators) mismatch(key Key, c Column) error {
	return fmt.Errorf("a foreign key of type %s cannot refer to %s", Short(c.Base), Short(key.Base))
}

// Equal returns the SQL condition that column equals value. Both arguments are SQL
// expressions.
func (c Comparison) Equal(column, value string) string {
	return c.column(column) + " " + c.Operator + " " + c.keyed(value)
}

// ordered reports whether the comparison has operators for lower and upper bounds.
func (c Comparison) ordered() bool { return c.atLeast != "" && !c.back && !c.computed }

// Between returns the same condition as Equal, written as two bounds. The planner does
// not know the value of a bound, so its estimate does not depend on statistics of the
// column. If the type has no such operators, Between returns Equal.
func (c Comparison) Between(column, value string) string {
	if !c.ordered() {
		return c.Equal(column, value)
	}
	column, value = c.column(column), c.keyed(value)
	return column + " " + c.atLeast + " " + value + " AND " + column + " " + c.atMost + " " + value
}

// InOrder returns an ORDER BY clause for a subquery with Between that stops at the first
// row, or "". A scan of the table would have to sort all rows first, so the planner uses
// an index however many rows it expects.
func (c Comparison) InOrder(column string) string {
	if !c.ordered() {
		return ""
	}
	return " ORDER BY " + c.column(column)
}

// Bounds returns conditions that limit the column to the range of an array of keys: from
// below and, if both is set, from above. They exclude no row that equals a key. Each
// begins with AND. Bounds returns "" if the type has no such operators.
func (c Comparison) Bounds(column, keys string, both bool) string {
	if !c.ordered() {
		return ""
	}
	if c.value != "" {
		keys += "::" + c.value + "[]"
	}
	collate := ""
	if c.collation != "" {
		collate = " COLLATE " + c.collation
	}
	bound := func(operator, order string) string {
		return fmt.Sprintf(" AND %s %s (SELECT given.key FROM pg_catalog.unnest(%s) AS given (key) ORDER BY given.key%s USING %s LIMIT 1)",
			c.column(column), operator, keys, collate, order)
	}
	if both {
		return bound(c.atLeast, c.less) + bound(c.atMost, c.more)
	}
	return bound(c.atLeast, c.less)
}

// Any returns the SQL condition that the column equals one of an array of keys.
func (c Comparison) Any(column, keys string) string {
	switch {
	case c.back:
		keys = fmt.Sprintf("ARRAY(SELECT %s FROM pg_catalog.unnest(%s) AS given (key))", c.keyed("given.key"), keys)
	case c.value != "":
		keys += "::" + c.value + "[]"
	}
	return fmt.Sprintf("%s %s ANY (%s)", c.column(column), c.Operator, keys)
}

func (c Comparison) column(column string) string {
	if c.cast != "" {
		column += "::" + c.cast
	}
	return column + c.collate
}

// keyed returns the SQL expression that converts a key to the type of the comparison. The
// expression is NULL if no value of the column can equal the key.
func (c Comparison) keyed(value string) string {
	if c.back {
		return fmt.Sprintf("CASE WHEN pg_catalog.trunc(%[1]s) OPERATOR(pg_catalog.=) %[1]s"+
			" AND %[1]s OPERATOR(pg_catalog.>=) '-9223372036854775808'::pg_catalog.numeric"+
			" AND %[1]s OPERATOR(pg_catalog.<=) '9223372036854775807'::pg_catalog.numeric THEN %[1]s::pg_catalog.int8 END", value)
	}
	if c.value != "" {
		return value + "::" + c.value
	}
	return value
}

// Serves reports whether an index can find rows for the comparison. position is the
// position of the compared column in the index.
func (o *Operators) Serves(i Index, position int, c Comparison) bool {
	if c.computed || i.Collations[position].Name != "" && i.Collations[position].Name != c.collation {
		return false
	}
	return slices.Contains(o.families[c.oid], i.Families[position])
}

// Servable reports whether an index on the column with the default operator class can
// find rows for the comparison.
func (o *Operators) Servable(column Column, c Comparison) bool {
	own, ok := o.class(column)
	return ok && o.Serves(Index{Families: []string{own.family}, Collations: []Collation{column.Collation}}, 0, c)
}

// Short returns a type name without pg_catalog and quotes.
func Short(typeName string) string {
	return strings.Trim(strings.TrimPrefix(typeName, "pg_catalog."), `"`)
}
