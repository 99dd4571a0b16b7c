package yamlfile

import (
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Schema is a JSON schema, as the draft 7 that editors know has it.
type Schema map[string]any

// Draft is the value of $schema.
const Draft = "http://json-schema.org/draft-07/schema#"

// SchemaOf describes what Decode reads into a struct of type t. The comments, as Comments reads them, become descriptions. Texts may hold variables
// if the file is read with them.
func SchemaOf(t reflect.Type, comments map[string]string, variables bool) Schema {
	properties, required := Schema{}, []string{}
	for _, s := range fieldsOf(t) {
		field := t.Field(s.index)
		var property Schema
		switch {
		case s.keyed:
			property = Schema{"type": "object", "additionalProperties": SchemaOf(field.Type.Elem(), comments, variables)}
		case field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[Literal]():
			property = SchemaOf(field.Type, comments, variables)
		case field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct:
			property = Schema{"type": "array", "items": SchemaOf(field.Type.Elem(), comments, variables)}
		default:
			property = value(field)
			if variables && (property["type"] != "string" || property["enum"] != nil) {
				property = Schema{"anyOf": []Schema{property, {"type": "string", "pattern": `\$\{`}}} // A variable may stand for any value.
			}
		}
		if text := comments[t.Name()+"."+field.Name]; text != "" {
			for _, other := range fieldsOf(t) { // People know the keys, not the fields.
				text = regexp.MustCompile(`\b`+t.Field(other.index).Name+`\b`).ReplaceAllString(text, other.key)
			}
			property["description"] = text
		}
		if standard, found := field.Tag.Lookup("default"); found {
			property["default"] = typed(standard, field.Type.Kind())
		}
		properties[s.key] = property
		if s.required {
			required = append(required, s.key)
		}
	}
	return Schema{"type": []string{"object", "null"}, "properties": properties, "required": required, "additionalProperties": false}
}

// value is the schema of what scalar and list read.
func value(field reflect.StructField) Schema {
	of := reflect.Zero(field.Type).Interface()
	switch of := of.(type) {
	case time.Duration:
		return Schema{"type": "string"}
	case Literal:
		return Schema{"type": []string{"string", "integer", "boolean"}}
	case Texts:
		return Schema{"type": []string{"string", "array"}, "items": Schema{"type": "string"}}
	case Chooser:
		return Schema{"type": "string", "enum": of.Choices()}
	case encoding.TextMarshaler:
		return Schema{"type": []string{"string", "integer"}}
	}
	switch field.Type.Kind() {
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int:
		return bounded(field.Tag.Get("check"))
	case reflect.Slice:
		return Schema{"type": "array", "items": Schema{"type": "string"}}
	default:
		return Schema{"type": "string"}
	}
}

// bounded is the schema of a number, within what its tag says.
func bounded(check string) Schema {
	number := Schema{"type": "integer"}
	var least, most int
	switch n, _ := fmt.Sscanf(check, "%d..%d", &least, &most); {
	case n == 2:
		number["minimum"], number["maximum"] = least, most
	case check == "positive":
		number["minimum"] = 1
	case strings.HasPrefix(check, "not negative"):
		number["minimum"] = 0
	}
	return number
}

func typed(text string, kind reflect.Kind) any {
	if number, err := strconv.Atoi(text); err == nil && kind == reflect.Int {
		return number
	}
	if kind == reflect.Bool {
		return text == "true"
	}
	return text
}

// Comments reads the comments above the fields of structs in a formatted Go file, by Struct.Field.
func Comments(source string) map[string]string {
	comments := map[string]string{}
	for _, structure := range regexp.MustCompile(`(?ms)^type (\w+) struct \{\n(.*?)^\}`).FindAllStringSubmatch(source, -1) {
		for _, field := range regexp.MustCompile(`(?m)((?:^\t//.*\n)+)^\t(\w+) `).FindAllStringSubmatch(structure[2], -1) {
			text := strings.ReplaceAll(field[1], "\t//", "")
			comments[structure[1]+"."+field[2]] = strings.Join(strings.Fields(text), " ")
		}
	}
	return comments
}
