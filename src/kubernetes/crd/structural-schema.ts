/** A CEL rule of a schema (`x-kubernetes-validations`). Its message identifies it among the rules of one kind and field. */
export interface ValidationRule {
  readonly rule: string
  readonly message: string
}

/** A structural schema of a CustomResourceDefinition: the constraints of one value. */
export interface StructuralSchema {
  readonly description?: string
  readonly type: 'object' | 'array' | 'string' | 'integer' | 'boolean'
  readonly format?: 'date-time' | 'int32' | 'int64'
  readonly default?: string | boolean | Readonly<Record<string, number>>
  readonly enum?: readonly string[]
  readonly pattern?: string
  readonly minLength?: number
  readonly maxLength?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly minItems?: number
  readonly maxItems?: number
  readonly minProperties?: number
  readonly maxProperties?: number
  readonly required?: readonly string[]
  readonly properties?: Readonly<Record<string, StructuralSchema>>
  readonly additionalProperties?: StructuralSchema
  readonly items?: StructuralSchema
  readonly 'x-kubernetes-list-type'?: 'atomic' | 'set' | 'map'
  readonly 'x-kubernetes-list-map-keys'?: readonly string[]
  readonly 'x-kubernetes-validations'?: readonly ValidationRule[]
}

/** Adds constraints to a schema. CEL rules of all of them are combined. */
export function withConstraints(schema: StructuralSchema, ...constraints: readonly Partial<StructuralSchema>[]): StructuralSchema {
  const rules = [schema, ...constraints].flatMap((part) => part['x-kubernetes-validations'] ?? [])
  const merged: StructuralSchema = Object.assign({}, schema, ...constraints)
  return rules.length === 0 ? merged : { ...merged, 'x-kubernetes-validations': rules }
}

/** Returns a rule that requires exactly one, or at most one, of these fields. */
export function oneOfRule(fields: readonly string[], required: boolean): ValidationRule {
  const given = `[${fields.map((field) => `has(self.${field})`).join(', ')}].filter(given, given).size()`
  return { rule: `${given} ${required ? '==' : '<='} 1`, message: `${required ? 'exactly' : 'at most'} one of ${fields.join(', ')}` }
}
