"""The networks of the suite. One more is a function in a file of this folder and a line here."""

from __future__ import annotations

from networks.network import Draw, Network, NetworkInput


def _image(side: int, channels: int = 3) -> tuple[NetworkInput, ...]:
    return (NetworkInput(name="image", shape=(1, channels, side, side)),)


def _tokens(length: int, below: int) -> NetworkInput:
    return NetworkInput(name="tokens", shape=(1, length), draw=Draw.TOKENS, below=below)


def _shipped(title: str, *, file: str, image: str = "data_0") -> Network:
    return Network(
        title=title,
        builder=f"shipped:{file}",
        inputs=(NetworkInput(name=image, shape=(1, 3, 224, 224)),),
        source="onnx package",
        is_shipped=True,
    )


NETWORKS: dict[str, Network] = {
    "light_alexnet": _shipped("AlexNet", file="bvlc_alexnet"),
    "light_densenet121": _shipped("DenseNet-121 (onnx)", file="densenet121"),
    "light_inception_v1": _shipped("Inception v1", file="inception_v1"),
    "light_inception_v2": _shipped("Inception v2", file="inception_v2"),
    "light_resnet50": _shipped("ResNet-50 (onnx)", file="resnet50", image="gpu_0/data_0"),
    "light_shufflenet": _shipped("ShuffleNet", file="shufflenet", image="gpu_0/data_0"),
    "light_squeezenet": _shipped("SqueezeNet", file="squeezenet"),
    "light_vgg19": _shipped("VGG-19", file="vgg19"),
    "light_zfnet512": _shipped("ZFNet-512", file="zfnet512", image="gpu_0/data_0"),
    "resnet18": Network(
        title="ResNet-18",
        builder="residual:resnet18",
        inputs=_image(224),
        parameters=11_689_512,
        source="arXiv:1512.03385",
    ),
    "resnet50": Network(
        title="ResNet-50",
        builder="residual:resnet50",
        inputs=_image(224),
        parameters=25_557_032,
        source="arXiv:1512.03385",
    ),
    "mobilenet_v2": Network(
        title="MobileNetV2",
        builder="mobile:mobilenet_v2",
        inputs=_image(224),
        parameters=3_504_872,
        source="arXiv:1801.04381",
    ),
    "mobilenet_v3_large": Network(
        title="MobileNetV3-L",
        builder="mobile:mobilenet_v3_large",
        inputs=_image(224),
        parameters=5_483_032,
        source="arXiv:1905.02244",
    ),
    "efficientnet_b0": Network(
        title="EfficientNet-B0",
        builder="mobile:efficientnet_b0",
        inputs=_image(224),
        parameters=5_288_548,
        source="arXiv:1905.11946",
    ),
    "ghostnet": Network(
        title="GhostNet",
        builder="mobile:ghostnet",
        inputs=_image(224),
        parameters=5_182_508,
        source="arXiv:1911.11907",
    ),
    "regnety_008": Network(
        title="RegNetY-008",
        builder="residual:regnety_008",
        inputs=_image(224),
        parameters=6_263_168,
        source="arXiv:2003.13678",
    ),
    "densenet121": Network(
        title="DenseNet-121",
        builder="residual:densenet121",
        inputs=_image(224),
        parameters=7_978_856,
        source="arXiv:1608.06993",
    ),
    "convnext_tiny": Network(
        title="ConvNeXt-tiny",
        builder="residual:convnext_tiny",
        inputs=_image(224),
        parameters=28_589_128,
        source="arXiv:2201.03545",
    ),
    "iresnet50": Network(
        title="iResNet-50",
        builder="residual:iresnet50",
        inputs=_image(112),
        source="arXiv:1801.07698",
    ),
    "vit_small": Network(
        title="ViT-S/16",
        builder="vision_attention:vit_small",
        inputs=_image(224),
        parameters=22_050_664,
        source="arXiv:2010.11929",
    ),
    "swin_tiny": Network(
        title="Swin-T",
        builder="vision_attention:swin_tiny",
        inputs=_image(224),
        parameters=28_288_354,
        source="arXiv:2103.14030",
    ),
    "mobilevit_s": Network(
        title="MobileViT-S",
        builder="vision_attention:mobilevit_s",
        inputs=_image(256),
        parameters=5_578_632,
        source="arXiv:2110.02178",
    ),
    "bert6": Network(
        title="BERT, 6 layers",
        builder="language:bert6",
        inputs=(
            _tokens(128, 30522),
            NetworkInput(name="mask", shape=(1, 128), draw=Draw.MASK),
        ),
        source="arXiv:1810.04805",
    ),
    "minilm6": Network(
        title="MiniLM, 6 layers",
        builder="language:minilm6",
        inputs=(
            _tokens(32, 30522),
            NetworkInput(name="mask", shape=(1, 32), draw=Draw.MASK),
        ),
        source="arXiv:2002.10957",
    ),
    "yolo_silu": Network(
        title="YOLO, SiLU",
        builder="detection:yolo_silu",
        inputs=_image(640),
        parameters=7_235_389,
        source="YOLOv5s 6.0",
    ),
    "yolo_mish": Network(
        title="YOLO, Mish",
        builder="detection:yolo_mish",
        inputs=_image(640),
        source="YOLOv5s 6.0 with the activation of arXiv:2004.10934",
    ),
    "unet2d": Network(
        title="U-Net 2-D",
        builder="image_to_image:unet2d",
        inputs=_image(256, 1),
        source="arXiv:1809.10486",
    ),
    "unet3d": Network(
        title="U-Net 3-D",
        builder="image_to_image:unet3d",
        inputs=(NetworkInput(name="volume", shape=(1, 1, 64, 64, 64)),),
        source="arXiv:1809.10486",
    ),
    "deeplab_head": Network(
        title="DeepLab head",
        builder="image_to_image:deeplab_head",
        inputs=(NetworkInput(name="features", shape=(1, 960, 33, 33)),),
        source="arXiv:1706.05587",
    ),
    "espcn": Network(
        title="ESPCN",
        builder="image_to_image:espcn",
        inputs=_image(224, 1),
        source="arXiv:1609.05158",
    ),
    "srvgg": Network(
        title="SRVGG",
        builder="image_to_image:srvgg",
        inputs=_image(96),
        parameters=621_424,
        source="arXiv:2107.10833",
    ),
    "gpt2": Network(
        title="GPT-2",
        builder="language:gpt2",
        inputs=(_tokens(128, 50257),),
        parameters=124_439_808,
        source="Radford et al. 2019",
    ),
    "gpt2_cached": Network(
        title="GPT-2, one token, cache",
        builder="language:gpt2",
        inputs=(
            _tokens(1, 50257),
            *(NetworkInput(name=f"past_{i}", shape=(2, 1, 12, 127, 64)) for i in range(12)),
        ),
        parameters=124_439_808,
        source="Radford et al. 2019",
    ),
    "whisper_tiny_encoder": Network(
        title="Whisper-tiny encoder",
        builder="audio:whisper_tiny_encoder",
        inputs=(NetworkInput(name="mel", shape=(1, 80, 3000)),),
        source="arXiv:2212.04356",
    ),
    "whisper_tiny_decoder": Network(
        title="Whisper-tiny decoder",
        builder="audio:whisper_tiny_decoder",
        inputs=(_tokens(32, 51865), NetworkInput(name="frames", shape=(1, 1500, 384))),
        source="arXiv:2212.04356",
    ),
    "conformer_block": Network(
        title="Conformer block",
        builder="audio:conformer_block",
        inputs=(NetworkInput(name="frames", shape=(1, 200, 256)),),
        source="arXiv:2005.08100",
    ),
    "hifigan": Network(
        title="HiFi-GAN",
        builder="audio:hifigan",
        inputs=(NetworkInput(name="mel", shape=(1, 80, 32)),),
        source="arXiv:2010.05646",
    ),
    "lstm_tagger": Network(
        title="LSTM tagger",
        builder="language:lstm_tagger",
        inputs=(_tokens(64, 20000),),
        source="arXiv:1508.01991",
    ),
    "efficientnet_v2_s": Network(
        title="EfficientNetV2-S",
        builder="mobile:efficientnet_v2_s",
        inputs=_image(224),
        parameters=21_458_488,
        source="arXiv:2104.00298",
    ),
    "regnety_016": Network(
        title="RegNetY-016",
        builder="residual:regnety_016",
        inputs=_image(224),
        parameters=11_202_430,
        source="arXiv:2003.13678",
    ),
    "repvgg_a0": Network(
        title="RepVGG-A0",
        builder="reparameterized:repvgg_a0",
        inputs=_image(224),
        parameters=8_309_384,
        source="arXiv:2101.03697",
    ),
    "mobileone_s1": Network(
        title="MobileOne-S1",
        builder="reparameterized:mobileone_s1",
        inputs=_image(224),
        parameters=4_764_840,
        source="arXiv:2206.04040",
    ),
    "convmixer_1024": Network(
        title="ConvMixer-1024/20",
        builder="mixers:convmixer_1024",
        inputs=_image(224),
        parameters=24_383_464,
        source="arXiv:2201.09792",
    ),
    "mixer_small": Network(
        title="MLP-Mixer S/16",
        builder="mixers:mixer_small",
        inputs=_image(224),
        parameters=18_528_264,
        source="arXiv:2105.01601",
    ),
    "poolformer_s12": Network(
        title="PoolFormer-S12",
        builder="mixers:poolformer_s12",
        inputs=_image(224),
        parameters=11_915_176,
        source="arXiv:2111.11418",
    ),
    "pvt_v2_b1": Network(
        title="PVT-v2-B1",
        builder="efficient_attention:pvt_v2_b1",
        inputs=_image(224),
        parameters=14_009_000,
        source="arXiv:2106.13797",
    ),
    "edgenext_small": Network(
        title="EdgeNeXt-S",
        builder="efficient_attention:edgenext_small",
        inputs=_image(224),
        parameters=5_586_832,
        source="arXiv:2206.10589",
    ),
    "efficientvit_b1": Network(
        title="EfficientViT-B1",
        builder="efficient_attention:efficientvit_b1",
        inputs=_image(224),
        source="arXiv:2205.14756",
    ),
}
