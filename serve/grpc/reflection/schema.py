"""The messages of the services, as far as this server reads and writes them; names and numbers are the published ones.

A line is a message, which goes on behind a comma: its fields with their types and numbers. `*` is repeated, `{}` a map
from strings, `?` one of a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from calibrant.serve.grpc.messages import DATA_TYPES


@dataclass(frozen=True)
class Schema:
    """A file of messages, enumerations and services."""

    file: str
    package: str
    messages: str
    services: Mapping[str, str]  # lines of methods: name, request, answer; `*` is a stream
    enums: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    choice: str = "choice"  # the name of what `?` is one of


INFERENCE = Schema(
    "grpc_service.proto",
    "inference",
    """
    ServerLiveRequest:
    ServerLiveResponse: live bool 1
    ServerReadyRequest:
    ServerReadyResponse: ready bool 1
    ModelReadyRequest: name string 1, version string 2
    ModelReadyResponse: ready bool 1
    ServerMetadataRequest:
    ServerMetadataResponse: name string 1, version string 2, extensions string* 3
    ModelMetadataRequest: name string 1, version string 2
    ModelMetadataResponse: name string 1, versions string* 2, platform string 3,
        inputs .TensorMetadata* 4, outputs .TensorMetadata* 5
    ModelMetadataResponse.TensorMetadata: name string 1, datatype string 2, shape int64* 3
    InferParameter: bool_param bool? 1, int64_param int64? 2, string_param string? 3, double_param double? 4,
        uint64_param uint64? 5
    InferTensorContents: bool_contents bool* 1, int_contents int32* 2, int64_contents int64* 3, uint_contents uint32* 4,
        uint64_contents uint64* 5, fp32_contents float* 6, fp64_contents double* 7, bytes_contents bytes* 8
    ModelInferRequest: model_name string 1, model_version string 2, id string 3, parameters InferParameter{} 4,
        inputs .InferInputTensor* 5, outputs .InferRequestedOutputTensor* 6, raw_input_contents bytes* 7
    ModelInferRequest.InferInputTensor: name string 1, datatype string 2, shape int64* 3, parameters InferParameter{} 4,
        contents InferTensorContents 5
    ModelInferRequest.InferRequestedOutputTensor: name string 1, parameters InferParameter{} 2
    ModelInferResponse: model_name string 1, model_version string 2, id string 3,
        parameters InferParameter{} 4, outputs .InferOutputTensor* 5, raw_output_contents bytes* 6
    ModelInferResponse.InferOutputTensor: name string 1, datatype string 2, shape int64* 3,
        parameters InferParameter{} 4, contents InferTensorContents 5
    ModelStreamInferResponse: error_message string 1, infer_response ModelInferResponse 2
    ModelConfigRequest: name string 1, version string 2
    ModelConfigResponse: config ModelConfig 1
    ModelConfig: name string 1, platform string 2, max_batch_size int32 4, input ModelInput* 5, output ModelOutput* 6,
        default_model_filename string 8, parameters ModelParameter{} 14, backend string 17
    ModelInput: name string 1, data_type DataType 2, dims int64* 4
    ModelOutput: name string 1, data_type DataType 2, dims int64* 3
    ModelParameter: string_value string 1
    ModelStatisticsRequest: name string 1, version string 2
    ModelStatisticsResponse: model_stats ModelStatistics* 1
    ModelStatistics: name string 1, version string 2, last_inference uint64 3, inference_count uint64 4,
        execution_count uint64 5, inference_stats InferStatistics 6, batch_stats InferBatchStatistics* 7
    InferStatistics: success StatisticDuration 1, fail StatisticDuration 2, queue StatisticDuration 3,
        compute_input StatisticDuration 4, compute_infer StatisticDuration 5, compute_output StatisticDuration 6,
        cache_hit StatisticDuration 7, cache_miss StatisticDuration 8
    InferBatchStatistics: batch_size uint64 1, compute_input StatisticDuration 2, compute_infer StatisticDuration 3,
        compute_output StatisticDuration 4
    StatisticDuration: count uint64 1, ns uint64 2
    RepositoryIndexRequest: repository_name string 1, ready bool 2
    RepositoryIndexResponse: models .ModelIndex* 1
    RepositoryIndexResponse.ModelIndex: name string 1, version string 2, state string 3, reason string 4
    RepositoryModelLoadRequest: repository_name string 1, model_name string 2, parameters ModelRepositoryParameter{} 3
    RepositoryModelLoadResponse:
    RepositoryModelUnloadRequest: repository_name string 1, model_name string 2, parameters ModelRepositoryParameter{} 3
    RepositoryModelUnloadResponse:
    ModelRepositoryParameter: bool_param bool? 1, int64_param int64? 2, string_param string? 3, bytes_param bytes? 4
    """,
    {
        "GRPCInferenceService": """
        ServerLive ServerLiveRequest ServerLiveResponse
        ServerReady ServerReadyRequest ServerReadyResponse
        ModelReady ModelReadyRequest ModelReadyResponse
        ServerMetadata ServerMetadataRequest ServerMetadataResponse
        ModelMetadata ModelMetadataRequest ModelMetadataResponse
        ModelInfer ModelInferRequest ModelInferResponse
        ModelStreamInfer ModelInferRequest* ModelStreamInferResponse*
        ModelConfig ModelConfigRequest ModelConfigResponse
        ModelStatistics ModelStatisticsRequest ModelStatisticsResponse
        RepositoryIndex RepositoryIndexRequest RepositoryIndexResponse
        RepositoryModelLoad RepositoryModelLoadRequest RepositoryModelLoadResponse
        RepositoryModelUnload RepositoryModelUnloadRequest RepositoryModelUnloadResponse
        """
    },
    {"DataType": tuple(f"TYPE_{name}" for name in DATA_TYPES)},
    "parameter_choice",
)

HEALTH = Schema(
    "grpc/health/v1/health.proto",
    "grpc.health.v1",
    """
    HealthCheckRequest: service string 1
    HealthCheckResponse: status .ServingStatus 1
    """,
    {
        "Health": """
        Check HealthCheckRequest HealthCheckResponse
        Watch HealthCheckRequest HealthCheckResponse*
        """
    },
    {"HealthCheckResponse.ServingStatus": ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")},
)


def reflection(version: str) -> Schema:
    """Its own messages, which have been the same since v1alpha."""
    return Schema(
        f"grpc/reflection/{version}/reflection.proto",
        f"grpc.reflection.{version}",
        """
        ServerReflectionRequest: host string 1, file_by_filename string? 3, file_containing_symbol string? 4,
            file_containing_extension ExtensionRequest? 5, all_extension_numbers_of_type string? 6,
            list_services string? 7
        ExtensionRequest: containing_type string 1, extension_number int32 2
        ServerReflectionResponse: valid_host string 1, original_request ServerReflectionRequest 2,
            file_descriptor_response FileDescriptorResponse? 4,
            all_extension_numbers_response ExtensionNumberResponse? 5,
            list_services_response ListServiceResponse? 6, error_response ErrorResponse? 7
        FileDescriptorResponse: file_descriptor_proto bytes* 1
        ExtensionNumberResponse: base_type_name string 1, extension_number int32* 2
        ListServiceResponse: service ServiceResponse* 1
        ServiceResponse: name string 1
        ErrorResponse: error_code int32 1, error_message string 2
        """,
        {"ServerReflection": "ServerReflectionInfo ServerReflectionRequest* ServerReflectionResponse*"},
    )


SCHEMAS = (INFERENCE, HEALTH, reflection("v1"), reflection("v1alpha"))
