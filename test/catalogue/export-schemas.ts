import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'

/** Schemas of what exports may write, after the specifications of OpenVEX 0.2.0 and OSV 1.6.0. They allow no other members, so that a misspelt one fails. */
const text = { type: 'string', minLength: 1 }
const time = { type: 'string', pattern: String.raw`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$` }
const purl = { type: 'string', pattern: '^pkg:[a-z]' }

function record(required: readonly string[], properties: Readonly<Record<string, unknown>>, more: object = {}): object {
  return { type: 'object', additionalProperties: false, required, properties, ...more }
}

function list(items: object, least = 1): object {
  return { type: 'array', minItems: least, uniqueItems: true, items }
}

const identified = { '@id': text, identifiers: record(['purl'], { purl }) }
const statuses = {
  affected: { properties: { status: { const: 'affected' } }, required: ['action_statement'] },
  notAffected: { properties: { status: { const: 'not_affected' } }, anyOf: [{ required: ['justification'] }, { required: ['impact_statement'] }] },
  others: { properties: { status: { enum: ['fixed', 'under_investigation'] } } },
}

const openvex = record(['@context', '@id', 'author', 'timestamp', 'version', 'statements'], {
  '@context': { const: 'https://openvex.dev/ns/v0.2.0' },
  '@id': { type: 'string', pattern: '^https://' },
  author: text,
  timestamp: time,
  version: { type: 'integer', minimum: 1 },
  statements: list(
    record(
      ['vulnerability', 'status'],
      {
        vulnerability: record(['name'], { name: text, aliases: list(text) }),
        timestamp: time,
        products: list(record(['@id'], { ...identified, subcomponents: list(record(['@id'], identified)) })),
        status: text,
        status_notes: text,
        justification: {
          enum: [
            'component_not_present',
            'vulnerable_code_not_present',
            'vulnerable_code_not_in_execute_path',
            'vulnerable_code_cannot_be_controlled_by_adversary',
            'inline_mitigations_already_exist',
          ],
        },
        impact_statement: text,
        action_statement: text,
      },
      { oneOf: Object.values(statuses) },
    ),
  ),
})

const range = record(['type', 'events'], {
  type: { enum: ['SEMVER', 'ECOSYSTEM', 'GIT'] },
  repo: text,
  events: list({
    type: 'object',
    minProperties: 1,
    maxProperties: 1,
    additionalProperties: false,
    properties: { introduced: text, fixed: text, last_affected: text, limit: text },
  }),
})

const osv = record(['schema_version', 'id', 'modified', 'affected'], {
  schema_version: { const: '1.6.0' },
  id: text,
  modified: time,
  published: time,
  aliases: list(text),
  severity: list(record(['type', 'score'], { type: { enum: ['CVSS_V2', 'CVSS_V3', 'CVSS_V4'] }, score: { type: 'string', pattern: '^(CVSS:[34]|AV:)' } })),
  affected: list(
    record(
      ['package'],
      { package: record(['ecosystem', 'name'], { ecosystem: text, name: text, purl }), ranges: list(range), versions: list(text) },
      { anyOf: [{ required: ['ranges'] }, { required: ['versions'] }] },
    ),
  ),
})

const ajv = new Ajv2020({ strict: false })

/** Check documents of each form. */
export const exportSchemas: Readonly<Record<'openvex' | 'osv', ValidateFunction>> = { openvex: ajv.compile(openvex), osv: ajv.compile(osv) }
