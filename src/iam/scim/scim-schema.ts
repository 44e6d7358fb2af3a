/** Definition of a SCIM attribute (RFC 7643 7), with the properties that users need. */
export interface ScimAttribute {
  readonly name: string
  readonly type: 'string' | 'boolean' | 'reference' | 'dateTime' | 'complex'
  readonly description: string
  readonly multiValued: boolean
  readonly required: boolean
  readonly caseExact: boolean
  readonly mutability: 'readWrite' | 'readOnly'
  readonly returned: 'default' | 'always'
  readonly uniqueness: 'none' | 'server'
  readonly referenceTypes?: readonly string[]
  readonly subAttributes?: ScimAttributes
}

/**
 * Attributes by name in lower case, because names ignore letter case (RFC 7643 2.1). A map, so that a name in a request cannot reach
 * members of Object.prototype.
 */
export type ScimAttributes = ReadonlyMap<string, ScimAttribute>

/** URN of the core attributes of users. */
export const userUrn = 'urn:ietf:params:scim:schemas:core:2.0:User'
/** URN and key of the enterprise extension. */
export const enterpriseUrn = 'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User'

const plain = { multiValued: false, required: false, caseExact: false, mutability: 'readWrite', returned: 'default', uniqueness: 'none' } as const

function text(name: string, description: string, more: Partial<ScimAttribute> = {}): ScimAttribute {
  return { name, type: 'string', description, ...plain, ...more }
}

function flag(name: string, description: string): ScimAttribute {
  return { name, type: 'boolean', description, ...plain }
}

function complex(name: string, description: string, subAttributes: readonly ScimAttribute[]): ScimAttribute {
  return { name, type: 'complex', description, ...plain, subAttributes: byName(subAttributes) }
}

/** Returns a multi-valued attribute whose values have a type, and of which at most one is primary (RFC 7643 2.4). */
function values(
  name: string,
  what: string,
  more: readonly ScimAttribute[] = [text('value', `The ${what} itself.`), text('display', 'The text to show for it.')],
): ScimAttribute {
  const subAttributes = [
    ...more,
    text('type', 'What it is used for, such as work.'),
    flag('primary', 'True if it is the preferred value. At most one value is.'),
  ]
  return { ...complex(name, `Each ${what} of the user.`, subAttributes), multiValued: true }
}

function byName(attributes: readonly ScimAttribute[]): ScimAttributes {
  return new Map(attributes.map((attribute) => [attribute.name.toLowerCase(), attribute]))
}

/** Attributes of a user that a directory can set. Passwords are not among them and are ignored. */
export const userAttributes = byName([
  text('userName', 'The name that the user signs in with.', { required: true, uniqueness: 'server' }),
  complex('name', 'The parts of the name.', [
    text('formatted', 'The whole name.'),
    text('familyName', 'The family name.'),
    text('givenName', 'The given name.'),
    text('middleName', 'The middle names.'),
    text('honorificPrefix', 'The title before the name.'),
    text('honorificSuffix', 'The suffix after the name.'),
  ]),
  text('displayName', 'The name to show to others.'),
  text('nickName', 'The nickname.'),
  text('title', 'The job title, such as Vice President.'),
  text('userType', 'The relationship to the organization, such as Employee.'),
  text('preferredLanguage', 'The preferred language.'),
  text('locale', 'The locale for dates and currencies, such as en-US.'),
  text('timezone', 'The time zone.'),
  flag('active', 'Whether the user may sign in.'),
  values('emails', 'e-mail address'),
  values('phoneNumbers', 'phone number'),
  values('addresses', 'address', [
    text('formatted', 'The full address.'),
    text('streetAddress', 'Street and number.'),
    text('locality', 'The city.'),
    text('region', 'The state or region.'),
    text('postalCode', 'The postal code.'),
    text('country', 'The country.'),
  ]),
  values('entitlements', 'entitlement'),
  values('roles', 'role in the directory; it grants nothing here'),
])

/** Attributes of the enterprise extension (RFC 7643 4.3). */
export const enterpriseAttributes = byName([
  text('employeeNumber', 'The employee number.'),
  text('costCenter', 'The cost center.'),
  text('organization', 'The organization.'),
  text('division', 'The division.'),
  text('department', 'The department.'),
  complex('manager', "The user's manager.", [
    text('value', 'The id of the manager.', { caseExact: true }),
    { ...text('$ref', 'The URL of the manager.', { caseExact: true }), type: 'reference', referenceTypes: ['User'] },
  ]),
])

/** Common attributes of SCIM resources (RFC 7643 3.1). No schema lists them. */
export const commonAttributes = byName([
  text('id', 'The id that the server assigns. It is never reused.', { caseExact: true, mutability: 'readOnly', returned: 'always', uniqueness: 'server' }),
  text('externalId', 'The id that the directory assigns.', { caseExact: true }),
  { ...text('schemas', 'The URNs of the schemas.', { caseExact: true, mutability: 'readOnly', returned: 'always' }), type: 'reference', multiValued: true },
  {
    ...complex('meta', 'Metadata of the resource.', [
      text('resourceType', 'The type of the resource.', { caseExact: true }),
      { ...text('created', 'When it was created.'), type: 'dateTime' },
      { ...text('lastModified', 'When it was last changed.'), type: 'dateTime' },
      { ...text('location', 'The URL of the resource.', { caseExact: true }), type: 'reference' },
      text('version', 'The etag of the resource.', { caseExact: true }),
    ]),
    mutability: 'readOnly',
  },
])

/** Core and common attributes of a user, without those of extensions. */
export const topAttributes: ScimAttributes = new Map([...commonAttributes, ...userAttributes])

/** The attribute that a path names. */
export interface ScimTarget {
  /** Undefined for the whole extension. */
  readonly attribute: ScimAttribute | undefined
  readonly sub: ScimAttribute | undefined
  /** True for attributes of the enterprise extension. */
  readonly enterprise: boolean
}

const pathPattern = /^(?:(urn:[\w.:-]+?)(?::(?=[^:]*$)|$))?(?:([A-Za-z$][\w$-]*)(?:\.([A-Za-z$][\w$-]*))?)?$/i

/** True if the text is this URN. Schema URNs ignore letter case. */
export function isUrn(text: string | undefined, urn: string): boolean {
  return text?.toLowerCase() === urn.toLowerCase()
}

/** Finds the attribute of `attribute` or `attribute.sub`, both with or without a URN, or of an extension's URN. Undefined if it is unknown. */
export function findTarget(path: string): ScimTarget | undefined {
  if (isUrn(path, enterpriseUrn)) return { attribute: undefined, sub: undefined, enterprise: true }
  const [, urn, name, subName] = pathPattern.exec(path) ?? []
  if (name === undefined) return undefined
  const enterprise = isUrn(urn, enterpriseUrn)
  if (urn !== undefined && !enterprise && !isUrn(urn, userUrn)) return undefined
  const attribute = (enterprise ? enterpriseAttributes : topAttributes).get(name.toLowerCase())
  const sub = subName === undefined ? undefined : attribute?.subAttributes?.get(subName.toLowerCase())
  if (attribute === undefined || (subName !== undefined && sub === undefined)) return undefined
  return { attribute, sub, enterprise }
}
