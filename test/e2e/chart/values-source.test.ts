import { expect, test } from 'vitest'
import { valuesSchema } from '../../../tools/chart/values.js'

const configuration = { properties: { level: { type: 'string' } }, additionalProperties: false }

function propertiesOf(source: string): unknown {
  return valuesSchema(source, configuration)['properties']
}

test.for([
  ['a string', "# Text.\nkey: ''", { type: 'string', description: 'Text.', default: '' }],
  ['a number', '# Amount.\nkey: 3', { type: 'integer', description: 'Amount.', minimum: 0, maximum: 1_000_000, default: 3 }],
  ['an empty list', '# Peers.\nkey: []', { type: 'array', description: 'Peers.', items: { type: 'object' }, default: [] }],
  ['keywords on one line', '# Port.\n# @schema maximum: 9\nkey: 3', { type: 'integer', description: 'Port.', minimum: 0, maximum: 9, default: 3 }],
  [
    'keywords on several lines',
    '# One\n# of two.\n# @schema\n# enum:\n#   - a\n#   - b\nkey: a',
    { type: 'string', description: 'One of two.', enum: ['a', 'b'], default: 'a' },
  ],
  ['a type', '# Labels.\n# @schema stringMap\nkey: {}', { type: 'object', description: 'Labels.', additionalProperties: { type: 'string' }, default: {} }],
  [
    'a default with a type',
    '# Limits.\n# @schema object\nkey:\n  cpu: 1',
    { type: 'object', description: 'Limits.', additionalProperties: true, default: { cpu: 1 } },
  ],
  ['settings of Taproot', '# Settings.\n# @schema configuration\nkey: {}', { type: 'object', description: 'Settings.', ...configuration, default: {} }],
  [
    'a section',
    '# A page.\n\n# Section.\nkey:\n  # Below.\n  below: true',
    {
      type: 'object',
      description: 'Section.',
      properties: { below: { type: 'boolean', description: 'Below.', default: true } },
      additionalProperties: false,
    },
  ],
] as const)('the generator reads from values.yaml %s', ([, source, expected]) => {
  expect(propertiesOf(source)).toEqual({ key: expected })
})

test.for([
  ['no description', 'a:\n  b: 1', 'a has no description'],
  ['no description below a section', '# A.\na:\n  b: 1', 'a.b has no description'],
  ['an unknown type', '# A.\n# @schema texts\na: {}', 'a: "@schema texts" is unknown; use one of: amount'],
  ['no default', '# A.\na:', 'a needs a default'],
  ['a default that is a fraction', '# A.\na: 0.5', 'a needs a default'],
  ['a duplicate key', '# A.\na: 1\n# B.\na: 2', 'Map keys must be unique'],
] as const)('the generator refuses %s', ([, source, message]) => {
  expect(() => propertiesOf(source)).toThrow(message)
})
