// The few forms that a value of the chart has, as JSON Schema (draft 7).

/** A group of values without any others. `required` names those that must be set. */
export function section(description, properties, required = []) {
  return { type: 'object', description, properties, ...(required.length > 0 ? { required } : {}), additionalProperties: false }
}

/** Text. Empty means absent. */
export function text(description, defaultValue = '', options = {}) {
  return { type: 'string', description, default: defaultValue, ...options }
}

/** One of a few words. */
export function word(description, words, defaultValue) {
  return { type: 'string', description, enum: words, default: defaultValue }
}

/** A whole number. */
export function count(description, defaultValue, { minimum = 0, maximum = 1_000_000 } = {}) {
  return { type: 'integer', description, minimum, maximum, default: defaultValue }
}

/** Yes or no. */
export function flag(description, defaultValue) {
  return { type: 'boolean', description, default: defaultValue }
}

/** A list; empty by default. */
export function list(description, items, defaultValue = []) {
  return { type: 'array', description, items, default: defaultValue }
}

/** Names with texts: labels, annotations, node selectors. */
export function texts(description, defaultValue = {}) {
  return { type: 'object', description, additionalProperties: { type: 'string' }, default: defaultValue }
}

/** A part of a Kubernetes object, which the API server checks. */
export function object(description, defaultValue = {}) {
  return { type: 'object', description, additionalProperties: true, default: defaultValue }
}

/** A list of parts of Kubernetes objects, which the API server checks. */
export function objects(description, defaultValue = []) {
  return { type: 'array', description, items: { type: 'object' }, default: defaultValue }
}

/** A whole number or a percentage. */
export function share(description, defaultValue = '') {
  return { type: ['integer', 'string'], description, pattern: '^([0-9]+%)?$', minimum: 0, default: defaultValue }
}

/** Text that is not empty. */
export function given(description, options = {}) {
  return { type: 'string', description, minLength: 1, ...options }
}
