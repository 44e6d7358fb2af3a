import type { DescMessage } from '@bufbuild/protobuf'
import { resources } from '../../base/schema/schema.ts'
import type { ObjectKind } from '../object-kinds.ts'
import { messageSchema, type Comments } from './field-schema.ts'
import { namespaceName, objectName, referenceSchema } from './reference-schema.ts'
import { statusSchema } from './status-schema.ts'
import { withConstraints, type StructuralSchema, type ValidationRule } from './structural-schema.ts'

const policies: Readonly<Record<string, StructuralSchema>> = {
  deletionPolicy: {
    description: 'What happens to the record when the object is deleted: Delete removes it, Orphan leaves it to the API.',
    type: 'string',
    enum: ['Delete', 'Orphan'],
    default: 'Delete',
  },
  adoptionPolicy: {
    description:
      'Record without an owner that the object can adopt, if its grant allows it. Never: none. ByUid: the one in its annotation taproot.dev/uid. ByName: the one with its name in its group.',
    type: 'string',
    enum: ['Never', 'ByUid', 'ByName'],
    default: 'ByUid',
  },
}

/** Shorthand fields that only objects have, by kind of record. Each is one more member of a oneof. */
const shorthands: Readonly<Partial<Record<ObjectKind['record'], { readonly oneof: string; readonly fields: Readonly<Record<string, StructuralSchema>> }>>> = {
  Identity: {
    oneof: 'relationship',
    fields: {
      serviceAccountRef: {
        description: 'Accepts tokens of a service account of this cluster. It replaces claimMatch, with the issuer of the cluster.',
        type: 'object',
        required: ['name'],
        properties: {
          name: { description: 'Name of the service account.', ...objectName },
          namespace: { description: 'Namespace of the service account. Default: the namespace of the object.', ...namespaceName },
        },
      },
    },
  },
}

/** Fields of the spec that are not in the record, by kind, and their rules. */
const ownFields: Readonly<
  Partial<Record<ObjectKind['record'], { readonly fields: Readonly<Record<string, StructuralSchema>>; readonly rules: readonly ValidationRule[] }>>
> = {
  Subscription: {
    fields: {
      suspend: {
        description:
          'If true, pauses deliveries. Events then wait for as long as events are stored. A change from true to false ends each pause, whatever its reason. Otherwise, false leaves a pause as it is.',
        type: 'boolean',
      },
      secretName: {
        description:
          'The Secret in the same namespace into which the controller writes the shared secret, under the key `secret`. Needs `signing: STANDARD_WEBHOOKS`.',
        ...objectName,
      },
    },
    rules: [
      {
        rule: "!has(self.secretName) || (has(self.signing) && self.signing == 'STANDARD_WEBHOOKS')",
        message: 'secretName needs signing: STANDARD_WEBHOOKS',
      },
    ],
  },
}

/** Fields of the status that only one kind has. */
const ownStatus: Readonly<Partial<Record<ObjectKind['record'], Readonly<Record<string, StructuralSchema>>>>> = {
  Subscription: {
    state: { description: 'Whether events are delivered: ACTIVE, FAILING or PAUSED.', type: 'string', enum: ['ACTIVE', 'FAILING', 'PAUSED'] },
    stateReason: { description: 'Why it is failing or paused.', type: 'string', maxLength: 1024 },
  },
}

/** Returns true for a field of the spec that concerns the object itself, not its record. */
export function isOwnField(field: string): boolean {
  return field in policies || field.endsWith('Ref') || Object.values(ownFields).some(({ fields }) => field in fields)
}

/** Returns the message type of a kind's records. */
export function recordOf({ record }: ObjectKind): DescMessage {
  const found = resources.get(record)
  if (found === undefined) throw new Error(`there is no resource of kind ${record}`)
  return found.desc
}

function specSchema(kind: ObjectKind, comments: Comments): StructuralSchema {
  const desc = recordOf(kind)
  const shorthand = shorthands[kind.record]
  const alternatives = shorthand && { [shorthand.oneof]: Object.keys(shorthand.fields) }
  const choice = { comments, withheld: kind.withheld, ...(alternatives && { alternatives }) }
  const { properties = {}, required = [], 'x-kubernetes-validations': rules = [] } = messageSchema(desc, choice)
  const references = Object.fromEntries(kind.references.map((row) => [row.field, referenceSchema(row)]))
  const needed = [...kind.references.filter(({ optional }) => !optional).map(({ field }) => field), ...required.filter((field) => field !== 'name')]
  const own = ownFields[kind.record]
  const description = comments.get(desc.typeName)
  if (description === undefined) throw new Error(`${desc} has no comment in its proto file`)
  return {
    description,
    type: 'object',
    ...(needed.length > 0 && { required: needed }),
    properties: { ...references, ...named(kind, properties), ...shorthand?.fields, ...own?.fields, ...policiesOf(kind, properties) },
    ...rulesOfSpec(kind, [...rules, ...(own?.rules ?? [])]),
  }
}

/** Returns the policy fields of a spec. A record without a name and references cannot be adopted by name. */
function policiesOf({ references }: ObjectKind, fields: Readonly<Record<string, StructuralSchema>>): Readonly<Record<string, StructuralSchema>> {
  if ('name' in fields || references.length > 1) return policies
  const adoptionPolicy: StructuralSchema = {
    ...policies['adoptionPolicy'],
    description: 'Which unowned record the object may adopt, if its grant allows it. Never: none. ByUid: the one in its annotation taproot.dev/uid.',
    type: 'string',
    enum: ['Never', 'ByUid'],
  }
  return { ...policies, adoptionPolicy }
}

/** Returns the fields with the description of `name` extended by its default, the name of the object. */
function named({ type }: ObjectKind, { name, ...others }: Readonly<Record<string, StructuralSchema>>): Readonly<Record<string, StructuralSchema>> {
  if (name === undefined) return others
  return { name: { ...name, description: `${name.description ?? ''} Default: the name of the ${type.kind}.` }, ...others }
}

/** Returns the rules of a spec. An optional reference must not be added or removed later. */
function rulesOfSpec({ references }: ObjectKind, rules: readonly ValidationRule[]): Partial<StructuralSchema> {
  const fixed = references
    .filter(({ optional }) => optional)
    .map(({ field }) => ({ rule: `has(self.${field}) == has(oldSelf.${field})`, message: `${field} never changes` }))
  const all = [...rules, ...fixed]
  return all.length === 0 ? {} : { 'x-kubernetes-validations': all }
}

/** Returns the schema of the whole object. */
export function objectSchema(kind: ObjectKind, comments: Comments): StructuralSchema {
  const spec = specSchema(kind, comments)
  const schema: StructuralSchema = {
    description: `${spec.description ?? ''} This Kubernetes object creates or shows such a record.`,
    type: 'object',
    required: ['spec'],
    properties: { spec, status: { ...statusSchema, properties: { ...statusSchema.properties, ...ownStatus[kind.record] } } },
  }
  const name = spec.properties?.['name']
  return name === undefined || takesEveryObjectName(name) ? schema : withConstraints(schema, { 'x-kubernetes-validations': [nameRule(name)] })
}

/** The shortest, a typical and the longest name of an object, used to test whether all object names are valid record names. */
const extremeNames: readonly string[] = ['a', 'a-1.b', 'a'.repeat(253)]

function takesEveryObjectName({ pattern = '', maxLength = Infinity }: StructuralSchema): boolean {
  return extremeNames.every((name) => name.length <= maxLength && new RegExp(pattern).test(name))
}

/** Returns the rule that the object's name must be a valid record name if the spec has none. */
function nameRule({ pattern, maxLength }: StructuralSchema): ValidationRule {
  const length = maxLength === undefined ? '' : ` && self.metadata.name.size() <= ${maxLength}`
  const message = 'metadata.name is not a valid name for the record: set spec.name'
  return { rule: `has(self.spec.name) || (self.metadata.name.matches('${pattern ?? ''}')${length})`, message }
}
