/** Returns the JSON Schema of the values in `source`. `configuration` is the schema of Taproot's own settings. */
export function valuesSchema(source: string, configuration: object): Record<string, unknown>
