package pgcatalog

import (
	"fmt"
	"slices"
	"strings"

	"sexton/internal/render"
)

// Key is one column of a unique index: what other tables refer to.
type Key struct {
	Column

	// family and input are those of the index, as is the collation; all empty where the
	// default ones hold.
	family, input string
	collation     Collation
}

// Collation is the rule by which texts are compared. Without a name, the type has none.
type Collation struct {
	// Name is qualified and quoted.
	Name string
	// Loose reports that it takes different texts for equal.
	Loose bool
}

// Key returns the columns of a unique index on exactly these columns, in any order; where
// a partitioned table has none, of its primary key.
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

// Comparison is how statements compare a column with values of one type.
type Comparison struct {
	// Operator is the qualified operator for equality, After that for greater than.
	Operator, After string
	// atLeast and atMost compare the column with a key, less and more compare two keys.
	// They are empty if the family lacks one of them.
	atLeast, atMost, less, more string
	// cast is the type that the column's values are cast to, value that of the values.
	cast, value string
	// back reports that numeric keys are converted to bigint, the column's type or as
	// good.
	back bool
	// collate is the collation to name, collation the one that results.
	collate, collation string
	oid                uint32
	// computed reports that the cast makes another value, which no index on the column
	// has.
	computed bool
}

// Own is how a column is compared with values of its own type, as its default index does.
func (o *Operators) Own(c Column) (Comparison, error) {
	found, ok := o.class(c)
	if !ok {
		return Comparison{}, fmt.Errorf("type %s has no order by which values could be compared", Short(c.Base))
	}
	return o.same(c, found), nil
}

// same compares a column by a class of its type. A value that is not of exactly the
// operator's types is cast where others may have put operators beside it, which could fit
// better.
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

// Parent is how the key's own column is compared with values of its type: by the index,
// and by its collation.
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
		return comparison, fmt.Errorf("type %s of the key does not compare as its index does", Short(key.Base))
	}
	// Beside a column of another collation the parent's would be ambiguous.
	comparison.name(key.collation)
	return comparison, nil
}

// defaultCollation needs no name: that of a column outweighs it.
const defaultCollation = "pg_catalog.\"default\""

func (c *Comparison) name(collation Collation) {
	c.collation = collation.Name
	if collation.Name != "" {
		c.collate = " COLLATE " + collation.Name
	}
}

// Compare is how a column is compared with values of a key, as a native foreign key would
// compare it: by the operator that the family of the parent's unique index has for the
// two types, and else by that of the parent's type, to which the column's value is then
// cast. The error says why there is no such way, or none that is the same in all
// sessions.
func (o *Operators) Compare(key Key, c Column) (Comparison, error) {
	by := class{key.family, key.input}
	if by.family == "" || o.members[member{by.family, by.input, by.input, equality}].oid == 0 {
		var ok bool
		if by, ok = o.class(key.Column); !ok { // as where the child's database has other types
			return Comparison{}, o.mismatch(key, c)
		}
	}
	comparison, err := o.between(key, by, c)
	switch {
	case key.collation.Name == c.Collation.Name:
	case key.collation.Loose || c.Collation.Loose:
		comparison.name(key.collation)
	default: // Beside the parent's column the child's would be ambiguous. Equal is the same by both.
		comparison.name(c.Collation)
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
				fmt.Errorf("%s with %s is compared by the time zone of the session, so that the answer changes from one to the next",
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

// order fills in the operators of the ordering for a column of type left and keys of the
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

// Equal is true for a value of the column that equals value; both are SQL expressions.
func (c Comparison) Equal(column, value string) string {
	return c.column(column) + " " + c.Operator + " " + c.keyed(value)
}

// ordered reports whether bounds can be written for the comparison.
func (c Comparison) ordered() bool { return c.atLeast != "" && !c.back && !c.computed }

// Between is the same condition as Equal, written as two bounds. The planner does not
// know the value of a bound, so its estimate does not depend on statistics of the column.
// It falls back to Equal if the type has no such operators.
func (c Comparison) Between(column, value string) string {
	if !c.ordered() {
		return c.Equal(column, value)
	}
	column, value = c.column(column), c.keyed(value)
	return column + " " + c.atLeast + " " + value + " AND " + column + " " + c.atMost + " " + value
}

// InOrder is an ORDER BY clause for a subquery that ends at the first row with Between,
// or "". A scan of the table would have to sort all rows first, so the planner uses an
// index however many rows it expects.
func (c Comparison) InOrder(column string) string {
	if !c.ordered() {
		return ""
	}
	return " ORDER BY " + c.column(column)
}

// Bounds limits the column to the range of an array of keys, below and, if both is set,
// above. It excludes no row that equals a key. Each condition begins with AND. It returns
// "" if the type has no such operators.
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

// Any is true for a value of the column that is in an array of keys.
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

// keyed is a key's value as the column is compared with it: NULL where no value of the
// column can equal it.
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

// Serves reports whether an index finds rows by its column number position for the
// comparison.
func (o *Operators) Serves(i Index, position int, c Comparison) bool {
	if c.computed || i.Collations[position].Name != "" && i.Collations[position].Name != c.collation {
		return false
	}
	return slices.Contains(o.families[c.oid], i.Families[position])
}

// Servable reports whether an ordinary index on the column finds rows for the comparison.
func (o *Operators) Servable(column Column, c Comparison) bool {
	own, ok := o.class(column)
	return ok && o.Serves(Index{Families: []string{own.family}, Collations: []Collation{column.Collation}}, 0, c)
}

// Short is a type name for people.
func Short(typeName string) string {
	return strings.Trim(strings.TrimPrefix(typeName, "pg_catalog."), `"`)
}
