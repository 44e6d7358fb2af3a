/** The schema of the values in `source`. `configuration` is the form of Taproot's own settings. */
export function valuesSchema(source: string, configuration: object): Record<string, unknown>
