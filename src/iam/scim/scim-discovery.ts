import { maxPage } from './scim-list.ts'
import { enterpriseAttributes, enterpriseUrn, userAttributes, userUrn, type ScimAttribute, type ScimAttributes } from './scim-schema.ts'

/** A discovery document of SCIM (RFC 7644 4). */
export type ScimDocument = Readonly<Record<string, unknown>>

function metaOf(resourceType: string, location: string): ScimDocument {
  return { meta: { resourceType, location } }
}

/** Returns the features of this server (RFC 7643 5). */
export function serviceProviderConfig(endpoint: string): ScimDocument {
  const no = { supported: false }
  const yes = { supported: true }
  return {
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:ServiceProviderConfig'],
    patch: yes,
    bulk: { ...no, maxOperations: 0, maxPayloadSize: 0 },
    filter: { ...yes, maxResults: maxPage },
    changePassword: no,
    sort: no,
    etag: yes,
    authenticationSchemes: [
      { type: 'oauthbearertoken', name: 'Bearer token', description: 'The SCIM token of the identity provider, in the Authorization header.', primary: true },
    ],
    ...metaOf('ServiceProviderConfig', `${endpoint}/ServiceProviderConfig`),
  }
}

/** Returns the resource types: users, but not groups (docs/spec/scim.md#scim-server). */
export function resourceTypes(endpoint: string): ScimDocument[] {
  return [
    {
      schemas: ['urn:ietf:params:scim:schemas:core:2.0:ResourceType'],
      id: 'User',
      name: 'User',
      endpoint: '/Users',
      description: 'A person who may sign in with this identity provider.',
      schema: userUrn,
      schemaExtensions: [{ schema: enterpriseUrn, required: false }],
      ...metaOf('ResourceType', `${endpoint}/ResourceTypes/User`),
    },
  ]
}

function attributeDocument({ subAttributes, ...attribute }: ScimAttribute): ScimDocument {
  return subAttributes === undefined ? attribute : { ...attribute, subAttributes: documentsOf(subAttributes) }
}

function documentsOf(attributes: ScimAttributes): ScimDocument[] {
  return [...attributes.values()].map(attributeDocument)
}

/** Returns the schemas of users (RFC 7643 7). */
export function schemas(endpoint: string): ScimDocument[] {
  const schema = (id: string, name: string, more: { description: string; attributes: ScimAttributes }): ScimDocument => ({
    schemas: ['urn:ietf:params:scim:schemas:core:2.0:Schema'],
    id,
    name,
    description: more.description,
    attributes: documentsOf(more.attributes),
    ...metaOf('Schema', `${endpoint}/Schemas/${id}`),
  })
  return [
    schema(userUrn, 'User', { description: 'A user of the directory.', attributes: userAttributes }),
    schema(enterpriseUrn, 'EnterpriseUser', { description: 'Attributes of employees.', attributes: enterpriseAttributes }),
  ]
}
